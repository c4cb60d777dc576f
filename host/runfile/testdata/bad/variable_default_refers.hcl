variable "a" {
  default = var.b
}
variable "b" {
  default = "x"
}

run "report" {
  backend "bwrap" {}
  command = ["echo", var.a]
}
