run "a" {
  command = ["echo" "hi"]
}
