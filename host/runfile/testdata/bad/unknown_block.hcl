runn "a" {
  command = ["true"]
}
