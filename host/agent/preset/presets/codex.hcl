# Codex CLI: https://developers.openai.com/codex
description = "Codex CLI"
program     = "codex"
install     = "npm install -g @openai/codex"
args        = ["--dangerously-bypass-approvals-and-sandbox"]
prompt      = ["exec", "--skip-git-repo-check"]
continue    = ["resume", "--last"]
hosts       = ["api.openai.com:443", "auth.openai.com:443", "chatgpt.com:443"]

key "CODEX_API_KEY" {
  from  = ["CODEX_API_KEY", "OPENAI_API_KEY"]
  hosts = ["api.openai.com"]

  base_url      = "OPENAI_BASE_URL"
  base_url_args = ["-c", "openai_base_url=\"{url}\""]
}

home ".codex/config.toml" {
  content = "check_for_update_on_startup = false\n\n[analytics]\nenabled = false\n\n[projects.\"/workspace\"]\ntrust_level = \"trusted\"\n"
}
