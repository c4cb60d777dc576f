locals {
  a {
    b = 1
  }
}

run "report" {
  backend "bwrap" {}
  command = ["true"]
}
