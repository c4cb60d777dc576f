variable "title" {
  default = "x"
}

run "report" {
  backend "bwrap" {}
  command = ["echo", vars.title, foo.bar]
}
