# want: missing_dependency main.go:3
run "r" {
  backend "bwrap" {}
  file "main.go" {
    content = <<-EOT
      package main

      import _ "github.com/surely/none"

      func main() {}
    EOT
  }
  entrypoint = "main.go"
}
