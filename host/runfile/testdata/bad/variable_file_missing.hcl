# options: --var-file testdata/bad/valeus.vars
variable "rows" {
  default = 1
}

run "report" {
  backend "bwrap" {}
  command = ["echo", var.rows]
}
