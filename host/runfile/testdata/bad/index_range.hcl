variable "rows" {
  default = [1, 2]
}

run "report" {
  backend "bwrap" {}
  command = ["echo", var.rows[2]]
}
