variable "token" {
  default   = "s3cr3t-value"
  sensitive = true
}

run "release" {
  backend "bwrap" {}
  command = ["true"]
  env     = { SET = "x" }
  network {
    allow = ["api.example.com", "*.files.example.com:8443"]
    deny  = ["no.files.example.com"]
    secret "NOTHING" { hosts = ["api.example.com"] }
    secret "VALUE" {
      from  = "s3cr3t-value"
      hosts = ["api.example.com"]
    }
    secret "VARIABLE" {
      from  = var.token
      hosts = ["api.example.com"]
    }
    secret "BOTH" {
      from    = env("BOTH")
      command = ["true"]
      hosts   = ["api.example.com"]
    }
    secret "TTL" {
      from  = env("TTL")
      ttl   = "1h"
      hosts = ["api.example.com"]
    }
    secret "COMMAND" {
      command = []
      hosts   = ["api.example.com"]
    }
    secret "NO HOSTS" { from = env("X") }
    secret "bad name" {
      from  = env("X")
      hosts = ["api.example.com"]
    }
    secret "ELSEWHERE" {
      from  = env("X")
      hosts = ["other.example.com"]
    }
    secret "DENIED" {
      from  = env("X")
      hosts = ["no.files.example.com:8443"]
    }
    secret "SET" {
      from  = env("X")
      hosts = ["api.example.com"]
    }
    secret "TWICE" {
      from  = env("X")
      hosts = ["api.example.com"]
    }
    secret "TWICE" {
      from  = env("Y")
      hosts = ["api.example.com"]
    }
    secret "RULES" {
      from  = env("X")
      hosts = ["api.example.com"]
      rule {}
    }
    secret "PATHS" {
      from  = env("X")
      hosts = ["api.example.com"]
      rule { paths = ["repos/acme"] }
    }
  }
}

run "none" {
  backend "bwrap" {}
  command = ["true"]
  network {
    mode = "none"
    secret "TOKEN" {
      from  = env("X")
      hosts = ["api.example.com"]
    }
  }
}
