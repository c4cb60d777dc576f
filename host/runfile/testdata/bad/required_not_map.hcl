hutch {
  required_backends {
    bwrap = ["0.1"]
    Bad   = "1.0"
  }
}

run "report" {
  backend "bwrap" {}
  command = ["true"]
}
