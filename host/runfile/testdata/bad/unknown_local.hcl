variable "title" {
  default = "x"
}

run "report" {
  backend "bwrap" {}
  command = ["echo", local.title]
}
