run "report" {
  backend "bwrap" {}
  command = ["true"]
  env = {
    "A-B" = "c"
  }
}
