# OpenCode: https://opencode.ai/docs
description  = "OpenCode"
program      = "opencode"
install      = "npm install -g opencode-ai"
language     = "javascript" # where the program is not in PATH
dependencies = ["opencode-ai"]
prompt       = ["run"]
continue     = ["--continue"]
hosts        = ["api.anthropic.com:443", "api.openai.com:443", "models.dev:443", "models.opencode.ai:443", "opencode.ai:443"]

key "ANTHROPIC_API_KEY" {
  hosts = ["api.anthropic.com"]
}
key "OPENAI_API_KEY" {
  hosts = ["api.openai.com"]
}

env = {
  OPENCODE_DISABLE_AUTOUPDATE = "true"
  OPENCODE_PERMISSION         = "{\"*\": \"allow\"}"
}

acp {
  args = ["acp"]
}
