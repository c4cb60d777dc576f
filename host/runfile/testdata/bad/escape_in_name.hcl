run "a\u001b[2J" {
  command = ["true"]
}
