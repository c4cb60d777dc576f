run "report" {
  backend "bwrap" {}
  command = ["true"]
  expect {
    cause = "time-out"
  }
}
