run "report" {
  backend "bwrap" {}
  command = ["true"]
  file "Main.py" {
    content = "x"
  }
  file "main.py" {
    content = "y"
  }
}
