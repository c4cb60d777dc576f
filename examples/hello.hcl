# Two Python files, one of which imports the other. Nothing has to be set up for the import to work.
#
#   hutch run examples/hello.hcl
#
# needs: bwrap python3
# expect hutch: exit 0
# expect hello: cause exited
# expect hello: stdout "Hello, world! This is Python"
# expect hello: stdout "I can see no network."

variable "name" {
  description = "whom to greet"
  type        = string
  default     = "world"
}

run "hello" {
  backend "bwrap" {}

  file "main.py" { source = "hello/main.py" }
  file "greeting.py" { source = "hello/greeting.py" }

  entrypoint = "main.py"
  args       = [var.name]

  limits {
    timeout = "30s"
    memory  = "256MiB"
    pids    = 32
  }
}
