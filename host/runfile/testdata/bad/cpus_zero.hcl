run "report" {
  backend "bwrap" {}
  command = ["true"]
  limits {
    cpus = 0
  }
}
