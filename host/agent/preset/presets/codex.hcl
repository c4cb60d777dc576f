# Codex CLI: https://developers.openai.com/codex
description  = "Codex CLI"
program      = "codex"
install      = "npm install -g @openai/codex"
language     = "javascript" # where the program is not in PATH
dependencies = ["@openai/codex"]
args         = ["--dangerously-bypass-approvals-and-sandbox"]
prompt       = ["exec", "--skip-git-repo-check"]
continue     = ["resume", "--last"]
hosts        = ["api.openai.com:443", "auth.openai.com:443", "chatgpt.com:443"]

key "CODEX_API_KEY" {
  from  = ["CODEX_API_KEY", "OPENAI_API_KEY"]
  hosts = ["api.openai.com"]
  args  = ["-c", "model_provider=\"key\""] # else it asks for a login at a terminal

  base_url      = "OPENAI_BASE_URL"
  base_url_args = ["-c", "openai_base_url=\"{url}\"", "-c", "model_providers.key.base_url=\"{url}\""]
}

home ".codex/config.toml" {
  content = "check_for_update_on_startup = false\n\n[analytics]\nenabled = false\n\n[projects.\"/workspace\"]\ntrust_level = \"trusted\"\n\n[model_providers.key]\nname = \"OpenAI\"\nbase_url = \"https://api.openai.com/v1\"\nenv_key = \"CODEX_API_KEY\"\nwire_api = \"responses\"\n"
}
