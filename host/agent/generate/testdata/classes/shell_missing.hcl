# want: missing_dependency main.sh:1
run "r" {
  backend "bwrap" {}
  file "main.sh" {
    content = <<-EOT
      surely-no-such-command --now
    EOT
  }
  entrypoint = "main.sh"
}
