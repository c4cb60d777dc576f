run "report" {
  backend "bwrap" {}
  command = ["echo", file("/etc/shadow"), file("../x")]
}
