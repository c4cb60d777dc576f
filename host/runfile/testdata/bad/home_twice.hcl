run "x" {
  backend "bwrap" {}
  command = ["true"]
  home "x" { content = "" }
  home "x" { content = "" }
}
