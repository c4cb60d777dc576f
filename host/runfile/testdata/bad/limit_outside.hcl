run "report" {
  backend "bwrap" {}
  command = ["true"]
  timeout = "30s"
  memory  = "512m"
}
