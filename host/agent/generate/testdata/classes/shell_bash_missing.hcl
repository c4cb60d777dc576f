# want: missing_dependency main.bash:2
run "r" {
  backend "bwrap" {}
  file "main.bash" {
    content = <<-EOT
      set -e
      surely-no-such-command
    EOT
  }
  entrypoint = "main.bash"
}
