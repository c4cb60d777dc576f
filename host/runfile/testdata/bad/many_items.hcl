locals {
  many = [for a in range(1000) : [for b in range(1000) : [for c in range(1000) : a]]]
}
run "a" {
  command = ["true"]
}
