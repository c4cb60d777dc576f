# want: network main.rb:2
run "r" {
  backend "bwrap" {}
  file "main.rb" {
    content = <<-EOT
      require "net/http"
      Net::HTTP.get(URI("http://example.com/"))
    EOT
  }
  entrypoint = "main.rb"
}
