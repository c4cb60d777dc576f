run "a" {
  command = ["grep", "\d+"]
}
