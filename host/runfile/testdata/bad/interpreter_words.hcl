run "report" {
  backend "bwrap" {}
  interpreter = "python3 -u"
  entrypoint  = "main.py"
  file "main.py" {
    content = ""
  }
}
