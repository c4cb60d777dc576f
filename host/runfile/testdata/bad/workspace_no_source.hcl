run "report" {
  backend "bwrap" {}
  command = ["true"]
  workspace {}
}
