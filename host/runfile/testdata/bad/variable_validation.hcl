# options: --var rows=-3
variable "rows" {
  type = number
  validation {
    condition     = var.rows > 0
    error_message = "rows must be more than zero."
  }
}

run "report" {
  backend "bwrap" {}
  command = ["echo", var.rows]
}
