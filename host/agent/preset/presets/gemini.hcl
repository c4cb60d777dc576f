# Gemini CLI: https://geminicli.com/docs
description  = "Gemini CLI"
program      = "gemini"
install      = "npm install -g @google/gemini-cli"
language     = "javascript" # where the program is not in PATH
dependencies = ["@google/gemini-cli"]
args         = ["--yolo"]
prompt       = ["-p"]
continue     = ["--resume", "latest"]
hosts        = ["generativelanguage.googleapis.com:443", "cloudcode-pa.googleapis.com:443", "oauth2.googleapis.com:443", "accounts.google.com:443"]

key "GEMINI_API_KEY" {
  hosts    = ["generativelanguage.googleapis.com"]
  base_url = "GOOGLE_GEMINI_BASE_URL"
}

env = {
  GEMINI_CLI_TRUST_WORKSPACE = "true"
}

home ".gemini/settings.json" {
  content = "{\"general\": {\"enableAutoUpdate\": false}, \"privacy\": {\"usageStatisticsEnabled\": false}, \"security\": {\"auth\": {\"selectedType\": \"gemini-api-key\"}}}\n"
}

acp {
  args = ["--acp", "--yolo"]
}
