run "report" {
  backend "bwrap" {}
  limit {
    memory = "1g"
  }
  command = ["true"]
}
