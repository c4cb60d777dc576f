run "a" {
  command = ["true"]
}
