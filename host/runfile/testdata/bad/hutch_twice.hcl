hutch {}
hutch {}

run "report" {
  backend "bwrap" {}
  command = ["true"]
}
