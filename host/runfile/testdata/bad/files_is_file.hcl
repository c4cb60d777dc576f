run "report" {
  backend "bwrap" {}
  command = ["true"]
  files {
    source = "src/main.py"
  }
}
