variable "a" {
  default = ""
}
variable "a" {
  default = "x"
}

run "report" {
  backend "bwrap" {}
  command = ["echo", var.a]
}
