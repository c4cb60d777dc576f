model "a" {
  provider = "openai"
  model    = "m"
  api_key  = "hunter2 hunter2"
}
model "b" {
  provider = "openai"
  model    = "m"
  api_key  = ["hunter2"]
}
run "a" {
  command = ["true"]
}
