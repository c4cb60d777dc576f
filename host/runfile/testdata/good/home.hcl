variable "token" {
  type      = string
  sensitive = true
  default   = "hidden"
}

run "agent" {
  backend "bwrap" {}
  command = ["agent"]

  home ".agent/token" {
    content = var.token
    mode    = "0600"
  }
  home ".agent/skills/plans.md" { builtin = "executing-plans-in-sandbox.md" }
  home ".agent/settings" { source = "home.hcl" }
}
