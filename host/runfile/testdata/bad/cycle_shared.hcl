model "m" {
  provider = "openai"
  model    = "x"
  api_key  = "k"
}

cycle "a" {
  workspace {
    source = "."
    mode   = "shared"
  }
}
