run "a" {
  command = ["true"]
}
run "a" {
  command = ["false"]
}
