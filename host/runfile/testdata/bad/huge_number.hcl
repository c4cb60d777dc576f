locals {
  x = "${1e600000000}"
}
run "a" {
  command = ["true"]
}
