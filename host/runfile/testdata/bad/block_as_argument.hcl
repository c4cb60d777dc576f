run "report" {
  backend "bwrap" {}
  command = ["true"]
  limits = {
    memory = "512m"
  }
}
