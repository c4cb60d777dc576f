run "report" {
  backend "bwrap" {}
  command = ["true"]
  dynamic "file" {
    for_each = ["a"]
    labels   = [file.value]
  }
}
