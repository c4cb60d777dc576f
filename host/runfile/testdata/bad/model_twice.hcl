model "a" {
  provider = "openai"
  model    = "m"
}
model "a" {
  provider = "openai"
  model    = "n"
}
run "a" {
  command = ["true"]
}
