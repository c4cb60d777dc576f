locals "x" {
}
run "a" {
  command = ["true"]
}
