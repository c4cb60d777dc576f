run "report" {
  backend "bwrap" {}
  command = ["true"]
  limits {
    memmory = "512MiB"
  }
}
