# options: --var-file testdata/good/some.vars
variable "sizes" {
  type = list(number)
}

variable "who" {
  default = "nobody"
}

locals {
  matrix = { for pair in setproduct(["a", "b"], var.sizes) : "${pair[0]}-${pair[1]}" => { letter = pair[0], size = pair[1] } }
}

run "sizes" {
  for_each = local.matrix
  backend "bwrap" {}
  command = ["echo", each.key, each.value.letter, each.value.size]
  dynamic "file" {
    for_each = range(each.value.size)
    iterator = n
    labels   = ["part-${n.value}.txt"]
    content {
      content = "${each.key}: ${n.key}"
    }
  }
  limits {
    memory = "${each.value.size}GiB"
  }
}

run "set" {
  for_each = toset(["x y", "quote\"d"])
  command  = ["echo", each.value]
}

run "none" {
  for_each = {}
  command  = ["echo", each.key]
}

run "auto" {
  command = ["echo", var.who]
}
