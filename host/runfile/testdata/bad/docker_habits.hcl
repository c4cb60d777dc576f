run "report" {
  backend "bwrap" {}
  image = "python:3.12"
  cmd = ["true"]
  working_dir = "/src"
  volumes = ["/a:/b"]
}
