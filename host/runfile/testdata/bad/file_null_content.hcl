run "report" {
  backend "bwrap" {}
  command = ["true"]
  file "a" {
    content = null
  }
}
