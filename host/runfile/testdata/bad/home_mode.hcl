run "x" {
  backend "bwrap" {}
  command = ["true"]
  home "x" {
    source = "home_mode.hcl"
    mode   = "0600"
  }
}
