run "report" {
  backend "bwrap" {}
  entrypoint = "main.py"
}
