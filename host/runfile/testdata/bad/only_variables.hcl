variable "rows" {
  default = 1
}
