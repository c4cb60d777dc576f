run "report" {
  backend "bwrap" {}
  command = ["true"]
  limits {
    files = 3
  }
}
