run "report" {
  backend "bwrap" {}
  command = ["true"]
  file "a\nb" {
    content = "x"
  }
}
