# options: --var-file testdata/bad/values.json
variable "rows" {
  type = number
}

run "report" {
  backend "bwrap" {}
  command = ["echo", var.rows]
}
