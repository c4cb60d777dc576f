variable "a" {
  type    = strng
  default = ""
}
variable "b" {
  type    = "string"
  default = ""
}
variable "c" {
  type    = list
  default = []
}

run "report" {
  backend "bwrap" {}
  command = ["echo", var.a]
}
