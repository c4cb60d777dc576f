run "report" {
  backend "bwrap" {}
  entrypont = "main.py"
}
