run "report" {
  backend "bwrap" {}
  command = ["true"]
  file "a" {
    content = "x"
    mode    = "4755"
  }
}
