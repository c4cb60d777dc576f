run "a" {
  command: ["true"]
}
