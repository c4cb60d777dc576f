run "report" {
  backend "bwrap" {}
  command = ["true"]
  file "main.py" {
    source = "../../load.go"
  }
}
