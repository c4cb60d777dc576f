run "a" {
  command =
}
