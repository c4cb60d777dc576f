run "report" {
  backend "bwrap" {}
  file "main.py" {
    content = ""
  }
}
