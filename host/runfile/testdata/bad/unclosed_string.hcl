run "a" {
  command = ["true]
}
