locals { hosts = ["example.org", "exa mple.org"] }

run "report" {
  backend "bwrap" {}
  command = ["true"]
  network {
    allow = [for h in local.hosts : "${h}:443"]
  }
}
