run "report" {
  backend "bwrap" {}
  command = ["true"]
  expect {
    cause = ["oom", "memory"]
  }
}

run "none" {
  backend "bwrap" {}
  command = ["true"]
  expect {
    cause = []
  }
}
