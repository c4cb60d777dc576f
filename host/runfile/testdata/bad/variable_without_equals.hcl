# options: --var rows
variable "rows" {
  default = 1
}

run "report" {
  backend "bwrap" {}
  command = ["echo"]
}
