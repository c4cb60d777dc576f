run "report" {
  backend "bwrap" {}
  command = ["true"]
  expect {
    stdout {
      matches = ["^ok", "a(b"]
    }
  }
}
