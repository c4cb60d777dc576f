run "report" {
  backend "bwrap" {}
  command = ["true"]
  file "a" {
    content_base64 = "###"
  }
}
