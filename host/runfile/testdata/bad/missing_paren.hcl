run "a" {
  command = ["echo", upper("x"]
}
