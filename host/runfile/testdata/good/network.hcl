# options: --var hosts=["a.example.org"]
variable "hosts" { type = list(string) }

run "rules" {
  command = ["true"]
  network {
    allow = concat(["packages.example.org", "*.Files.example.org:443", "10.1.2.0/24:8080", "host:11434"], var.hosts, ["a.example.org"])
    deny  = ["upload.files.example.org"]
  }
}

run "publish" {
  command = ["true"]
  network { publish = ["3000", "8080:80", "0:5432"] }
}

run "nothing" {
  command = ["true"]
  network { allow = [] }
}

run "explicit" {
  command = ["true"]
  network {
    mode  = "filtered"
    allow = ["example.org"]
  }
}

run "set" {
  command = ["true"]
  network { allow = toset(["b.example.org", "a.example.org"]) }
}
