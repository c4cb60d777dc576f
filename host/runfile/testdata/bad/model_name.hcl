model "llama3.2:latest" {
  provider = "openai"
  model    = "llama3.2:latest"
}
model {
  provider = "openai"
}
run "a" {
  command = ["true"]
}
