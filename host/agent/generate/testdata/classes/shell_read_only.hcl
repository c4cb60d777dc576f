# want: policy main.sh:1
run "r" {
  backend "bwrap" {}
  file "main.sh" {
    content = <<-EOT
      echo x > "$HUTCH_INPUT/x"
    EOT
  }
  entrypoint = "main.sh"
}
