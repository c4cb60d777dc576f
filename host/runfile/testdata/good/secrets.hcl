variable "org" { default = "acme" }
locals { dir = "${env("HOME")}/keys" }

run "release" {
  backend "bwrap" {}
  command = ["gh", "release", "create"]
  network {
    allow = ["api.example.com", "*.files.example.com:8443"]
    secret "GITHUB_TOKEN" {
      from  = env("CI") == null ? file("unused") : env("GH_TOKEN")
      hosts = ["api.example.com"]
      rule {
        methods = ["GET", "HEAD"]
        paths   = ["/repos/${var.org}/*"]
      }
      rule { paths = ["/user"] }
    }
    secret "KEY" {
      from  = file("${local.dir}/key")
      hosts = ["*.files.example.com:8443"]
    }
    secret "HERE" {
      from  = file("keys/here")
      hosts = ["api.example.com:443"]
    }
    secret "OAUTH" {
      command = ["gh", "auth", "token"]
      ttl     = "1h"
      hosts   = ["api.example.com"]
    }
  }
}
