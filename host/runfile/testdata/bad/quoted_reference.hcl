variable "rows" {
  default = 1
}
run "a" {
  command = ["echo", "${var.rows"]
}
