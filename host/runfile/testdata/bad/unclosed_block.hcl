run "a" {
  command = ["true"]
