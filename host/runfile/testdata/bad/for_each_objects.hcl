run "m" {
  for_each = [{ name = "a" }]
  backend "bwrap" {}
  command = ["true"]
}
