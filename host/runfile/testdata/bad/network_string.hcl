run "report" {
  backend "bwrap" {}
  command = ["true"]
  network {
    allow = "example.org"
  }
}
