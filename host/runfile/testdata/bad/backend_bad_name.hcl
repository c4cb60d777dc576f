run "a" {
  backend "../evil" {}
  command = ["true"]
}
