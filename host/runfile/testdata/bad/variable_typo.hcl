variable "a" {
  defualt = ""
}

run "report" {
  backend "bwrap" {}
  command = ["echo", var.a]
}
