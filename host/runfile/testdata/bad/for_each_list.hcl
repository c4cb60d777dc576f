run "report" {
  backend "bwrap" {}
  for_each = ["a", "b"]
  command  = ["echo", each.key]
}
