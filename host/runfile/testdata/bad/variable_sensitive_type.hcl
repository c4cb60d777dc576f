# options: --var pin=hunter2
variable "pin" {
  type      = number
  sensitive = true
}

run "report" {
  backend "bwrap" {}
  command = ["echo", var.pin]
}
