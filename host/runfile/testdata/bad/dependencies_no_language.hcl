run "report" {
  backend "bwrap" {}
  command      = ["true"]
  dependencies = ["requests"]
}
