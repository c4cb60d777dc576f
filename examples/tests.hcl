# A test suite runs on a project without being able to touch it: the workspace is private, so what the tests write
# (bytecode, a report) stays in the sandbox and is listed as changes. The expect block says what makes the run good;
# --junit FILE writes it down for a CI service.
#
#   hutch run examples/tests.hcl --junit results.xml
#
# needs: bwrap python3
# expect hutch: exit 0
# expect unit: stderr "Ran 3 tests"
# expect unit: change test-report.txt
# expect broken: cause exited
# expect broken: stderr "AssertionError"

run "unit" {
  backend "bwrap" {}

  workspace {
    source = "project"
  }
  command = ["python3", "-m", "unittest", "-v", "test_stack"]

  limits {
    timeout = "1m"
  }
  expect {
    exit_code = 0
    stderr {
      contains = ["OK"]
    }
  }
}

# A suite that has to fail, such as one for a bug that is not fixed yet, is good when it fails as it should.
run "broken" {
  backend "bwrap" {}

  workspace {
    source = "project"
    mode   = "readonly"
  }
  command = ["python3", "-B", "-m", "unittest", "test_known_bug"]

  limits {
    timeout = "1m"
  }
  expect {
    exit_code = 1
    stderr {
      contains = ["FAILED (failures=1)"]
    }
  }
}
