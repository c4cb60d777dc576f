# A network of names: one host is allowed on one port. Everything else is denied at once, with a reason for the program,
# and listed below the run with what would allow it.
#
#     hutch run examples/network.hcl
#     hutch show
#     hutch run examples/network.hcl install --var registry=host:8080    # a package index of this machine
#
# needs: bwrap python3
# expect hutch: exit 0
# expect fetch: exit 0
# expect fetch: stdout "http://packages.example.org/: 403 hutch: denied: packages.example.org:80 is not in network.allow"
# expect fetch: stdout "http://upload.files.example.org:443/: [Errno -2] Name or service not known"
# expect fetch: stdout "http://192.0.2.1/: 403 hutch: denied: 192.0.2.1:80 is not in network.allow"

variable "registry" {
  description = "a Python package index on this machine, host:PORT"
  type        = string
  default     = ""
}

run "fetch" {
  backend "bwrap" {}

  file "fetch.py" {
    content = <<-EOT
      import sys, urllib.error, urllib.request

      for url in sys.argv[1:]:
          try:
              print(url, "reached", urllib.request.urlopen(url, timeout=20).status, sep=": ")
          except urllib.error.HTTPError as e:
              print(f"{url}: {e.code} {e.read().decode()}")
          except urllib.error.URLError as e:
              print(f"{url}: {e.reason}")
    EOT
  }
  entrypoint = "fetch.py"
  args       = ["http://packages.example.org/", "http://upload.files.example.org:443/", "http://192.0.2.1/"]

  network {
    allow = ["packages.example.org:443", "*.files.example.org:443"]
    deny  = ["upload.files.example.org"]
  }
}

# pip reaches the index by its rule, and nothing else.
run "install" {
  for_each = toset(compact([var.registry]))

  backend "bwrap" {}

  command = ["python3", "-m", "pip", "download", "--no-deps", "--dest", "/workspace/output", "--trusted-host", "host",
  "--index-url", "http://${each.key}/simple/", "greeting"]

  network { allow = [each.key] }
}
