run "report" {
  backend "bwrap" {}
  command = ["true"]
  limits {
    timeout = 30
  }
}
