run "report" {
  backend "bwrap" {}
  entrypoint = "main.py"
  command    = ["python3", "main.py"]
  file "main.py" {
    content = ""
  }
}
