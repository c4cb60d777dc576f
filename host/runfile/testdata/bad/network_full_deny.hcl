run "report" {
  backend "bwrap" {}
  command = ["true"]
  network {
    mode = "full"
    deny = ["example.org"]
  }
}
