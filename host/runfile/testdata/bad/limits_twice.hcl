run "report" {
  backend "bwrap" {}
  command = ["true"]
  limits {
    pids = 1
  }
  limits {
    pids = 2
  }
}
