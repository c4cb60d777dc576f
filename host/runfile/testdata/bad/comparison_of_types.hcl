variable "n" {
  default = "x"
}
run "a" {
  command = ["echo", var.n + 1, var.n ? "a" : "b"]
}
