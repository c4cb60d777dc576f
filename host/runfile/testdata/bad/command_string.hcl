run "report" {
  backend "bwrap" {}
  command = "pytest -q"
}
