run "report" {
  backend "bwrap" {}
  for_each = toset(["a", "b"])
  command  = ["echo", each.kye]
  limits {
    memory = each.value
  }
}
