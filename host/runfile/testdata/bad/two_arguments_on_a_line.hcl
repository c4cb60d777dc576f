run "a" {
  command = ["true"]   workdir = "sub"
}
