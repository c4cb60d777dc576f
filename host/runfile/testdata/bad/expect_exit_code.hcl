run "report" {
  backend "bwrap" {}
  command = ["true"]
  expect {
    exit_code = [0, 300]
  }
}
