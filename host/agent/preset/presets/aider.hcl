# Aider: https://aider.chat/docs. Not tested with the real program.
description = "Aider"
program     = "aider"
install     = "python3 -m pip install aider-install && aider-install"
args        = ["--yes-always", "--no-check-update", "--no-analytics", "--no-show-release-notes", "--no-gitignore"]
prompt      = ["--message"]
continue    = ["--restore-chat-history"]
hosts       = ["api.anthropic.com:443", "api.openai.com:443", "generativelanguage.googleapis.com:443"]
omit        = [".aider.chat.history.md", ".aider.input.history", ".aider.tags.cache.v4"]

key "ANTHROPIC_API_KEY" {
  hosts    = ["api.anthropic.com"]
  base_url = "ANTHROPIC_BASE_URL"
}
key "OPENAI_API_KEY" {
  hosts    = ["api.openai.com"]
  base_url = "OPENAI_API_BASE"
}
key "GEMINI_API_KEY" {
  hosts = ["generativelanguage.googleapis.com"]
}
