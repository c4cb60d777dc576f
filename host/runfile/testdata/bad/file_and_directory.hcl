run "report" {
  backend "bwrap" {}
  command = ["true"]
  file "a" {
    content = "x"
  }
  file "a/b" {
    content = "y"
  }
}
