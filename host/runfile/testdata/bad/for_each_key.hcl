run "report" {
  backend "bwrap" {}
  for_each = toset(["a\nb"])
  command  = ["echo", each.key]
}
