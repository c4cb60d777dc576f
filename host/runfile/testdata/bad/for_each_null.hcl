variable "m" {
  default = null
}

run "report" {
  backend "bwrap" {}
  for_each = var.m
  command  = ["echo", each.key]
}
