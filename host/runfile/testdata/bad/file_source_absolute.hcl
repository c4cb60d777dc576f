run "report" {
  backend "bwrap" {}
  command = ["true"]
  file "passwd" {
    source = "/etc/passwd"
  }
}
