# Claude Code: https://code.claude.com/docs
description  = "Claude Code"
program      = "claude"
install      = "npm install -g @anthropic-ai/claude-code"
language     = "javascript" # where the program is not in PATH
dependencies = ["@anthropic-ai/claude-code"]
args         = ["--dangerously-skip-permissions"]
prompt       = ["-p"]
continue     = ["--continue"]
hosts        = ["api.anthropic.com:443", "claude.ai:443", "platform.claude.com:443"]

key "ANTHROPIC_API_KEY" {
  hosts    = ["api.anthropic.com"]
  base_url = "ANTHROPIC_BASE_URL"
}

key "CLAUDE_CODE_OAUTH_TOKEN" { # of a subscription, by claude setup-token
  hosts    = ["api.anthropic.com"]
  base_url = "ANTHROPIC_BASE_URL"
}

env = {
  IS_SANDBOX                               = "1" # it refuses to skip its prompts as root
  DISABLE_AUTOUPDATER                      = "1"
  CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC = "1"
}

home ".claude.json" {
  content = "{\"hasCompletedOnboarding\": true, \"projects\": {\"/workspace\": {\"hasTrustDialogAccepted\": true}}}\n"
}
home ".claude/settings.json" {
  content = "{\"skipDangerousModePermissionPrompt\": true, \"permissions\": {\"defaultMode\": \"bypassPermissions\"}}\n"
}

acp { # the adapter brings Claude Code
  program = "claude-agent-acp"
  install = "npm install -g @agentclientprotocol/claude-agent-acp"
}
