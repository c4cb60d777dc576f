run "a" {
  command = ["true"]
}
}
