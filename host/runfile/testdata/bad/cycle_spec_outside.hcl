model "m" {
  provider = "openai"
  model    = "x"
  api_key  = "k"
}

cycle "a" {
  spec = "../good/specs/SPEC.md"
}
