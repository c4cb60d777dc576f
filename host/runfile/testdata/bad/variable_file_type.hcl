# options: --var-file testdata/bad/values.vars
variable "rows" {
  type = number
}
variable "tags" {
  type = list(string)
}

run "report" {
  backend "bwrap" {}
  command = ["echo", var.rows]
}
