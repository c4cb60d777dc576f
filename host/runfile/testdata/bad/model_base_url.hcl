model "a" {
  provider = "openai"
  model    = "m"
  base_url = "localhost:11434/v1"
}
model "b" {
  provider = "openai"
  model    = "m"
  base_url = "https://me:hunter2@example.com/v1"
}
model "c" {
  provider = "openai"
  model    = "m"
  base_url = "http://localhost:8000/v1/chat/completions"
}
model "d" {
  provider = "anthropic"
  model    = "m"
  base_url = "https://example.com/?version=1"
}
run "a" {
  command = ["true"]
}
