model "m" {
  provider = "openai"
  model    = "x"
  api_key  = "k"
}

cycle "a" {
  check      = []
  setup      = "make deps"
  tool_calls = 0
  apply      = "always"
  model      = "n"
}
