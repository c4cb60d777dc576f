run "report" {
  backend "bwrap" {}
  entrypoint = "mian.py"
  files {
    source = "src"
    include = ["**/*.py"]
  }
}
