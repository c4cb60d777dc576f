# want: runtime main.py:2
run "r" {
  backend "bwrap" {}
  network { allow = ["example.org:443"] }
  file "main.py" {
    content = <<-EOT
      import urllib.request
      urllib.request.urlopen("http://example.org/")
    EOT
  }
  entrypoint = "main.py"
}
