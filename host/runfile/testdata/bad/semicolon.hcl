run "a" {
  command = ["true"];
}
