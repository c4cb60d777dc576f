run "locked" {
  backend "bwrap" {}
  language  = "python"
  command   = ["true"]
  lock_file = "some.vars"
}
