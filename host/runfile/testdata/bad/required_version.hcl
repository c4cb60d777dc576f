hutch {
  required_backends {
    bwrap = { version = "latest" }
    acme  = { sourec = "x" }
  }
}

run "report" {
  backend "bwrap" {}
  command = ["true"]
}
