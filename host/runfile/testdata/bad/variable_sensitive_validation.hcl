# options: --var token=hunter2
variable "token" {
  sensitive = true
  validation {
    condition     = length(var.token) > 20
    error_message = "The token ${var.token} is too short."
  }
}

run "report" {
  backend "bwrap" {}
  command = ["echo", var.token]
}
