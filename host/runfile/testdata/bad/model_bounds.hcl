model "a" {
  provider    = "openai"
  model       = ""
  max_tokens  = 0
  context_window = 100
  temperature = 2.5
  timeout     = 30
  retries     = 21
  budget {
    tokens = 1.5
    turns  = 0
    time   = "ten minutes"
  }
}
model "b" {
  provider = "openai"
  model    = "m"
  budget {
    turns = 1
  }
  budget {
    turns = 2
  }
}
model "c" {
  provider = "openai"
  model    = "m\u009b31m"
}
run "a" {
  command = ["true"]
}
