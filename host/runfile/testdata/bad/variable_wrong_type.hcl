# options: --var rows=many
variable "rows" {
  type = number
}

run "report" {
  backend "bwrap" {}
  command = ["echo", var.rows]
}
