run "report" {
  backend "bwrap" {}
  language = "pyhton"
  command  = ["true"]
}
