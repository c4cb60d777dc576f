run "report" {
  backend "bwrap" {}
  command = ["echo", uper("x")]
}
