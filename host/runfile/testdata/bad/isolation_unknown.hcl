run "report" {
  backend "bwrap" {}
  command       = ["true"]
  min_isolation = "virtual-machine"
}
