run "report" {
  backend "bwrap" {}
  entrypoint = "main.py"
  file "/etc/passwd" {
    content = "x"
  }
  file "main.py" {
    content = ""
  }
}
