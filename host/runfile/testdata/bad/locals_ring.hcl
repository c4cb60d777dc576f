locals {
  a = local.b
  b = "${local.c}!"
  c = local.a
}

run "report" {
  backend "bwrap" {}
  command = ["echo", local.a]
}
