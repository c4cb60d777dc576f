variable "tags" {
  type    = map(string)
  default = {
    a = "b"
    c = ["d"]
  }
}

run "report" {
  backend "bwrap" {}
  command = ["echo"]
}
