run {
  command = ["true"]
}
