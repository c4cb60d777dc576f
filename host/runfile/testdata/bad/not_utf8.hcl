# café
run "a" {
  command = ["true"]
}
