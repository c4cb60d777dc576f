run "report" {
  backend "bwrap" {}
  command = ["true"]
  file "./a//b" {
    content = "x"
  }
}
