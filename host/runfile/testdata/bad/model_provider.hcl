model "a" {
  provider = "openia"
  model    = "m"
}
model "b" {
  provider = "Ollama"
  model    = "m"
}
model "c" {
  model = "m"
}
run "a" {
  command = ["true"]
}
