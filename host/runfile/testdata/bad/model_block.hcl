model "gpt" {
  provider = "openai"
}
run "a" {
  command = ["true"]
}
