run "report" {
  backend "bwrap" {}
  for_each = toset([1, 2])
  command  = ["echo", each.key]
}
