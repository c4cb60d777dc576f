run "a" {
  command ["true"]
}
