run "a" "b" {
  command = ["true"]
}
