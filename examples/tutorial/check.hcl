# Checks the project of the tutorial (docs/tutorial.md): what to run, its limits, and what counts as success.
run "check" {
  backend "bwrap" {}

  workspace { source = "shop" }
  command = ["python3", "-B", "check.py"]

  limits {
    timeout = "30s"
    memory  = "256MiB"
  }

  expect {
    stdout {
      contains = ["is 6"]
    }
  }
}
