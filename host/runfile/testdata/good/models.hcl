# options: --var key=hunter2-var OPENAI_API_KEY=hunter2-openai OPENAI_BASE_URL=https://proxy.example.com/v1 ANTHROPIC_API_KEY=hunter2-anthropic
variable "key" {
  sensitive = true
}

model "hosted" {
  provider = "openai"
  model    = "gpt-5.2"
}

model "claude" {
  provider       = "anthropic"
  model          = "claude-sonnet-5"
  max_tokens     = 8000
  context_window = 200000
  temperature    = 0.2
  timeout        = "90s"
  retries        = 0
  budget {
    tokens = 100000
    turns  = 20
    time   = "15m"
  }
}

model "local" {
  provider = "openai"
  model    = "qwen3-coder"
  base_url = "http://localhost:11434/v1"
}

model "gateway" {
  provider = "openai"
  model    = "m"
  base_url = "https://gateway.example.com/v1"
  api_key  = "x-${var.key}"
}

model "answers" {
  provider = "scripted"
  script   = "models.hcl"
  protocol = "anthropic"
}

run "a" {
  backend "bwrap" {}
  command = ["true"]
}
