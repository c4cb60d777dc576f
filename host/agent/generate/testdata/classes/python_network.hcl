# want: network main.py:2
run "r" {
  backend "bwrap" {}
  file "main.py" {
    content = <<-EOT
      import urllib.request
      urllib.request.urlopen("http://example.com/")
    EOT
  }
  entrypoint = "main.py"
}
