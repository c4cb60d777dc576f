run "report" {
  backend "bwrap" {}
  command = ["true"]
  env     = { HUTCH_INPUT = "/etc" }
}
