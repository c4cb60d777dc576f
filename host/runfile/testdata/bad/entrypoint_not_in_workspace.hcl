run "report" {
  backend "bwrap" {}
  entrypoint = "mian.py"
  workspace {
    source = "src"
  }
}
