run "report" {
  backend "bwrap" {}
  command = ["true"]
  allow   = ["example.org"]
  network {
    allowed = ["example.org"]
  }
}
