run "a" {
  command = ["true"]
  command = ["false"]
}
