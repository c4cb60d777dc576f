run "report" {
  backend "bwrap" {}
  command = ["true"]
  env = {
    A = "b"
    C = { D = "e" }
  }
}
