run "report" {
  backend "bwrap" {}
  for_each = 3
  command  = ["echo", each.key]
}
