run "-rm" {
  command = ["true"]
}
