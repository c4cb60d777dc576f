# A program in a pod of a cluster: the project is copied there, and what the program changes comes back when you ask for
# it. The kubeconfig's current context says which cluster and namespace; docs/kubernetes.md has what they need.
#
#   hutch run examples/kubernetes.hcl
#   hutch run examples/kubernetes.hcl --var image=docker.io/library/busybox:1
#
# needs: kubernetes
# expect hutch: exit 0
# expect survey: stdout "3 Python files"
# expect survey: stdout "I am a pod, and not root."
# expect survey: change files.txt

variable "image" {
  description = "the container's root file system, as the cluster's nodes pull it"
  type        = string
  default     = "docker.io/library/python:3-slim"
}

run "survey" {
  backend "kubernetes" {
    image    = var.image
    lifetime = "10m" # the cluster ends the pod by then, whatever became of hutch
  }

  workspace {
    source = "project"
  }
  file "survey.sh" { source = "kubernetes/survey.sh" }
  entrypoint = "survey.sh"

  limits {
    timeout = "1m"
    memory  = "256MiB"
    cpus    = 1
  }
}
