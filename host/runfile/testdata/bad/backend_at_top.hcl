backend "bwrap" {}
run "a" {
  command = ["true"]
}
