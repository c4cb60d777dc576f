run "report" {
  backend "bwrap" {}
  command = ["true"]
  files {
    source  = "src"
    include = ["**/*.py", "[a-"]
  }
}
