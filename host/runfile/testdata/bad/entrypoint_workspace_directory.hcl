run "report" {
  backend "bwrap" {}
  entrypoint = "pkg"
  workspace {
    source = "src"
  }
}
