# want: syntax main.bash:3
run "r" {
  backend "bwrap" {}
  file "main.bash" {
    content = <<-EOT
      x=1
      for do
    EOT
  }
  entrypoint = "main.bash"
}
