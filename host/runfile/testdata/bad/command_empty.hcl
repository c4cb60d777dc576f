run "report" {
  backend "bwrap" {}
  command = []
}
