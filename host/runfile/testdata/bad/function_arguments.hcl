run "report" {
  backend "bwrap" {}
  command = ["echo", upper("a", "b"), join(",")]
}
