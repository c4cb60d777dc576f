run "report" {
  backend "bwrap" {}
  command = ["true"]
  file "../evil" {
    content = "x"
  }
}
