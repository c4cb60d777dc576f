timeout = "30s"
language = "python"
run "a" {
  command = ["true"]
}
