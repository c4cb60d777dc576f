locals {
  n = "x"
}
run "${local.n}" {
  command = ["true"]
}
