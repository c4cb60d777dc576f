model "a" {
  provider  = "openai"
  model     = "m"
  api_base  = "http://localhost:8000/v1"
  max_retry = 2
  num_ctx   = 8192
  tokens    = 1000
  budget    = { turns = 3 }
  limits {
  }
}
run "a" {
  command = ["true"]
}
