run "report" {
  backend "bwrap" {}
  command = ["true"]
  outputs = ["*.json", "../x", "/etc/*"]
}
