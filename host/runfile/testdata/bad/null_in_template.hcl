variable "rows" {
  default = null
}

run "report" {
  backend "bwrap" {}
  command = ["echo", "rows: ${var.rows}"]
}
