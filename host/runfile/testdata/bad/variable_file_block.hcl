# options: --var-file testdata/bad/block.vars
variable "rows" {
  default = 1
}

run "report" {
  backend "bwrap" {}
  command = ["echo", var.rows]
}
