run "report" {
  backend "bwrap" {}
  entrypoint = "/usr/bin/python3"
  file "main.py" {
    content = ""
  }
}
