model "a" {
  provider = "scripted"
}
model "b" {
  provider = "scripted"
  script   = "model_scripted.hcl"
  protocol = "grpc"
}
model "c" {
  provider = "scripted"
  script   = "../../../../go.mod"
}
model "d" {
  provider = "scripted"
  script   = "model_scripted.hlc"
}
model "e" {
  provider = "scripted"
  script   = "model_scripted.hcl"
  api_key  = "hunter2"
}
model "f" {
  provider = "openai"
  model    = "m"
  script   = "model_scripted.hcl"
}
run "a" {
  command = ["true"]
}
