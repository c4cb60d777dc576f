variable "m" {
  sensitive = true
  default = "1g"
}

run "report" {
  backend "bwrap" {}
  command = ["true"]
  limits {
    memory = var.m
  }
}
