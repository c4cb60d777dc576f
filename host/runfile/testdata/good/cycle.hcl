# options: --var key=hunter2hunter2
variable "key" {
  type      = string
  sensitive = true
}

model "a" {
  provider = "openai"
  model    = "x"
  api_key  = var.key
}

model "b" {
  provider = "anthropic"
  model    = "y"
}

cycle "plain" {
  model = "b"
}

cycle "whole" {
  model        = "a"
  spec         = "specs/SPEC.md"
  instructions = "Be brief."
  setup        = ["make", "deps"]
  check        = ["go", "test", "./..."]
  tool_calls   = 20
  apply        = "on-success"
  env          = { TOKEN = var.key }

  backend "bwrap" {}

  workspace {
    source = "specs"
  }
  limits {
    timeout = "90s"
  }
  network {
    mode = "full"
  }
}
