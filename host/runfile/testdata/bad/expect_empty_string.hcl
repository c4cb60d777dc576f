run "report" {
  backend "bwrap" {}
  command = ["true"]
  expect {
    stderr {
      contains = ""
    }
  }
}
