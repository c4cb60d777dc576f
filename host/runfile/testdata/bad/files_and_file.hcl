run "report" {
  backend "bwrap" {}
  command = ["true"]
  files {
    source = "src"
  }
  file "main.py" {
    content = "x"
  }
}
