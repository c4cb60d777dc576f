# want: runtime main.go:5
run "r" {
  backend "bwrap" {}
  file "main.go" {
    content = <<-EOT
      package main

      func main() {
      	var m map[string]int
      	m["x"] = 1
      }
    EOT
  }
  entrypoint = "main.go"
}
