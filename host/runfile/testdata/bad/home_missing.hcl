run "x" {
  backend "bwrap" {}
  command = ["true"]
  home "x" { source = "no/such" }
}
