model "m" {
  provider = "openai"
  model    = "x"
  api_key  = "k"
}

cycle "a" {
  spec = "none.md"
}
