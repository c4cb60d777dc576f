# options: HUTCH_VAR_a=null
variable "a" {
  type     = list(string)
  nullable = false
}

run "report" {
  backend "bwrap" {}
  command = ["echo", var.a]
}
