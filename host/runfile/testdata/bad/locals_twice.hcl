locals {
  a = 1
}
locals {
  a = 2
}

run "report" {
  backend "bwrap" {}
  command = ["echo", local.a]
}
