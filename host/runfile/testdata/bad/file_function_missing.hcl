run "report" {
  backend "bwrap" {}
  command = ["echo", file("src/mian.py")]
}
