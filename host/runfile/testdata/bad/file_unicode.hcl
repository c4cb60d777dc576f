run "report" {
  backend "bwrap" {}
  command = ["true"]
  file "caf\u00e9" {
    content = "x"
  }
  file "cafe\u0301" {
    content = "y"
  }
}
