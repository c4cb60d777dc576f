model "m" {
  provider = "openai"
  model    = "x"
  api_key  = "k"
}

cycle "a" {
  verify = ["true"]
  turns  = 3
  timeout = "5m"
}
