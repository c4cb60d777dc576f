run "a" {
  backend {}
  command = ["true"]
}
