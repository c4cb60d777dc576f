run "a" {
  comm[2Jand = ["true"]
}
