run "report" {
  backend "bwrap" {}
  command = ["true"]
  file "src" {
    source = "src"
  }
}
