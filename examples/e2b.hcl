# A program in a machine of E2B's cloud: the project travels there as one archive, without what its .gitignore names, and
# what the program changes comes back when you ask for it. The key is in your environment, and nowhere else.
#
#   export E2B_API_KEY=e2b_…
#   hutch run examples/e2b.hcl
#
# Without an account, the local server of plugins/e2b/e2btest does: go run ./plugins/e2b/e2btest/hutch-e2b-server
# prints what to export.
#
# needs: e2b
# expect hutch: exit 0
# expect survey: stdout "3 Python files"
# expect survey: stdout "I am on a machine of E2B, as user."
# expect survey: output report.txt
# expect survey: change files.txt

variable "template" {
  description = "what the machine is made from"
  type        = string
  default     = "base"
}

run "survey" {
  backend "e2b" {
    template = var.template
    timeout  = "2m" # without a word from hutch the service ends the machine by itself
  }

  workspace {
    source = "project"
  }
  file "survey.sh" { source = "e2b/survey.sh" }
  entrypoint = "survey.sh"

  limits {
    timeout = "1m"
    memory  = "512MiB" # held by the template: its machines have no more
  }
}
