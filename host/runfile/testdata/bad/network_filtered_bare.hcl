run "report" {
  backend "bwrap" {}
  command = ["true"]
  network {
    mode = "filtered"
  }
}
