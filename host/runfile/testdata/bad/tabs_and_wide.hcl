run "report" {
  backend "bwrap" {}
	command = ["日本語", "x", [1]]
}
