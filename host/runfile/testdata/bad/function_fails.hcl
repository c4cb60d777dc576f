run "report" {
  backend "bwrap" {}
  command = ["echo", jsondecode("{")]
}
