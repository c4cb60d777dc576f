run "a" {
  command = ['true']
}
