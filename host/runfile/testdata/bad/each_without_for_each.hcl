run "report" {
  backend "bwrap" {}
  command = ["echo", each.key]
}
