run "report" {
  backend "bwrap" {}
  command = ["true"]
  dynamic "fiel" {
    for_each = ["a"]
    labels   = [fiel.value]
    content {
      content = "x"
    }
  }
}
