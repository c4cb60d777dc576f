run "report" {
  backend "bwrap" {}
  command = ["echo", templatefile("src/page.tmpl", { name = "x" })]
}
