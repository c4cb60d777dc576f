run "report" {
  backend "bwrap" {}
  command = ["true"]
  limits {
    memory = "512 parsecs"
  }
}
