variable "token" {
  default   = "NAME_THAT_IS_SECRET"
  sensitive = true
}

run "a" {
  command = ["true"]
  env     = { (var.token) = "x" }
}
