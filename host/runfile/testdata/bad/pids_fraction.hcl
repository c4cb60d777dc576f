run "report" {
  backend "bwrap" {}
  command = ["true"]
  limits {
    pids = 1.5
  }
}
