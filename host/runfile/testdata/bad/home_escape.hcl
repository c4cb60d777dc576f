run "x" {
  backend "bwrap" {}
  command = ["true"]
  home "../x" { content = "" }
}
