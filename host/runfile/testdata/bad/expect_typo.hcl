run "report" {
  backend "bwrap" {}
  command = ["true"]
  expect {
    stdout {
      contain = "ok"
    }
  }
}
