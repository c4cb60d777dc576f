run "report" {
  backend "bwrap" {}
  colour = "red"
  command = ["true"]
}
