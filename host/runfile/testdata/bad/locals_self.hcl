locals {
  a = "${local.a}!"
}

run "report" {
  backend "bwrap" {}
  command = ["echo", local.a]
}
