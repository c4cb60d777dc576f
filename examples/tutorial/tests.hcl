# The tests of the tutorial's project, in a sandbox; docs/tutorial.md has the story.
run "tests" {
  backend "bwrap" {}

  workspace { source = "shop" }
  command = ["python3", "-m", "unittest"]

  limits {
    timeout = "30s"
    memory  = "256MiB"
  }

  expect {
    stderr { contains = ["OK"] }
  }
}
