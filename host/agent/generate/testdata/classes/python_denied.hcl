# want: policy main.py:2
run "r" {
  backend "bwrap" {}
  network { allow = ["example.org:443"] }
  file "main.py" {
    content = <<-EOT
      import urllib.request
      urllib.request.urlopen("http://packages.example.net/")
    EOT
  }
  entrypoint = "main.py"
}
