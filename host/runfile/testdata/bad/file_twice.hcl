run "report" {
  backend "bwrap" {}
  command = ["true"]
  file "a" {
    content = "x"
  }
  file "a" {
    content = "y"
  }
}
