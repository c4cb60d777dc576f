run "../x" {
  command = ["true"]
}
