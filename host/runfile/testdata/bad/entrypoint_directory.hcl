run "report" {
  backend "bwrap" {}
  entrypoint = "pkg"
  files {
    source = "src"
    include = ["**/*.py"]
  }
}
