run "report" {
  backend "bwrap" {}
  command = ["echo", file("src/pkg/binary.dat")]
}
