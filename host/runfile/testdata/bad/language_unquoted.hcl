run "report" {
  backend "bwrap" {}
  language = python
  command  = ["true"]
}
