run "m" {
  for_each = [1, 2]
  backend "bwrap" {}
  command = ["true"]
}
