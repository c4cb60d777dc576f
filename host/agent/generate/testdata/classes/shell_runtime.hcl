# want: runtime
run "r" {
  backend "bwrap" {}
  file "main.sh" {
    content = <<-EOT
      exit 3
    EOT
  }
  entrypoint = "main.sh"
}
