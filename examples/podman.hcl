# A program in a container: the image is its root file system, the project lies over it as an overlay, and what the
# program writes stays in the sandbox. No daemon runs, as root or as an ordinary user with subordinate ids. The first
# command makes a small image of this machine's busybox, without a registry.
#
#   examples/podman/image.sh
#   hutch run examples/podman.hcl
#   hutch run examples/podman.hcl --var image=docker.io/library/alpine:3
#
# needs: podman
# before podman: podman/image.sh
# expect hutch: exit 0
# expect survey: stdout "BusyBox"
# expect survey: stdout "3 Python files"
# expect survey: stdout "I cannot write to the image."
# expect survey: change files.txt

variable "image" {
  description = "the container's root file system; one that is not on this machine is asked from its registry"
  type        = string
  default     = "localhost/hutch-example"
}

run "survey" {
  backend "podman" {
    image = var.image
  }

  workspace {
    source = "project"
  }
  file "survey.sh" { source = "podman/survey.sh" }
  entrypoint = "survey.sh"

  limits {
    timeout = "1m"
  }
}
