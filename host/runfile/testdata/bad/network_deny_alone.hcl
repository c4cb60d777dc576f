run "report" {
  backend "bwrap" {}
  command = ["true"]
  network {
    deny = ["example.org"]
  }
}
