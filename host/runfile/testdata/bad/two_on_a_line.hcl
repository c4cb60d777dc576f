run "a" {
  command = ["true"]
  limits { timeout = "30s"   memory = "512MiB" }
}
