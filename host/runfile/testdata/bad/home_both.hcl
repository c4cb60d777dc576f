run "x" {
  backend "bwrap" {}
  command = ["true"]
  home "x" {
    content = ""
    builtin = "executing-plans-in-sandbox.md"
  }
}
