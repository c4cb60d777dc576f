run "report" {
  backend "bwrap" {}
  command = ["echo"]
  args    = ["a", null]
}
