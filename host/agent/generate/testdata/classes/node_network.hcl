# want: network
run "r" {
  backend "bwrap" {}
  file "main.js" {
    content = <<-EOT
      fetch("http://example.com/").then(r => console.log(r.status));
    EOT
  }
  entrypoint = "main.js"
}
