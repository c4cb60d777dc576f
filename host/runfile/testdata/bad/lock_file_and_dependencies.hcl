run "locked" {
  backend "bwrap" {}
  language     = "python"
  command      = ["true"]
  dependencies = ["a"]
  lock_file    = "lock_file_and_dependencies.hcl"
}

run "aged" {
  backend "bwrap" {}
  command   = ["true"]
  min_age   = "3d"
  lock_file = "lock_file_and_dependencies.hcl"
}

run "missing" {
  backend "bwrap" {}
  command   = ["true"]
  lock_file = "nothing.txt"
}
