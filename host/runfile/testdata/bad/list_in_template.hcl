variable "rows" {
  default = [1, 2]
}

run "report" {
  backend "bwrap" {}
  command = ["echo", "rows: ${var.rows}"]
}
