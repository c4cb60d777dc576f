run "x" {
  backend "bwrap" {}
  command = ["true"]
  home "x" { builtin = "executing-plan.md" }
}
