run "report" {
  backend "bwrap" {}
  command = ["echo"]
  args    = ["a", ["b", "c"], "d"]
}
