variable "m" {
  sensitive = true
  default = {
    a = "b"
  }
}

run "report" {
  backend "bwrap" {}
  command = ["true"]
  dynamic "file" {
    for_each = var.m
    labels   = [file.key]
    content {
      content = file.value
    }
  }
}
