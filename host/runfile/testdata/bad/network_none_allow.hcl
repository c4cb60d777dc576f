run "report" {
  backend "bwrap" {}
  command = ["true"]
  network {
    mode  = "none"
    allow = ["example.org"]
  }
}
