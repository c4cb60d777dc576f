# options: --var tags=[a,b --var more=[a]
variable "tags" {
  type = list(string)
}
variable "more" {
  type = list(string)
}

run "report" {
  backend "bwrap" {}
  command = ["echo"]
}
