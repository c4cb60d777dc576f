run "report" {
  backend "bwrap" {}
  command = ["true"]
  network {
    allow = [sensitive("example.org")]
  }
}
