# want: syntax main.sh:2
run "r" {
  backend "bwrap" {}
  file "main.sh" {
    content = <<-EOT
      if true; then
      fi
    EOT
  }
  entrypoint = "main.sh"
}
