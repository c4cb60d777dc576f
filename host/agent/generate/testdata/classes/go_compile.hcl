# want: syntax main.go:4
run "r" {
  backend "bwrap" {}
  file "main.go" {
    content = <<-EOT
      package main

      func main() {
      	x := undefinedThing
      	_ = x
      }
    EOT
  }
  entrypoint = "main.go"
}
