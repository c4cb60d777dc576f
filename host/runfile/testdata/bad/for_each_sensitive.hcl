variable "m" {
  sensitive = true
  default = {
    a = "b"
  }
}

run "report" {
  backend "bwrap" {}
  for_each = var.m
  command  = ["echo", each.key]
}
