run "report" {
  backend "bwrap" {}
  command = ["true"]
  file "a" {
    source  = "src/main.py"
    content = "x"
  }
}
