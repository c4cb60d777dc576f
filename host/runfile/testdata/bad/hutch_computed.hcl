variable "i" {
  default = "vm"
}

hutch {
  min_isolation = var.i
}

run "report" {
  backend "bwrap" {}
  command = ["true"]
}
