run "report" {
  backend "bwrap" {}
  command = ["true"]
  network {
    allow = [
      "packages.example.org", "https://example.org/x",
      "*.example.org:0", "10.1.2.3/24", "::1", "a.*.org", "*",
    ]
    deny = ["example.org:https", ""]
  }
}
