variable "token" {
  description = "the token of the registry"
}

run "report" {
  backend "bwrap" {}
  command = ["echo", var.token]
}
