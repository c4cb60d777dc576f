# options: --var rowz=3 --var nothing=1
variable "rows" {
  default = 1
}

run "report" {
  backend "bwrap" {}
  command = ["echo", var.rows]
}
