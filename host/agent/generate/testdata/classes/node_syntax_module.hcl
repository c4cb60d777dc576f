# want: syntax main.mjs:1
run "r" {
  backend "bwrap" {}
  file "main.mjs" {
    content = <<-EOT
      const = 1;
    EOT
  }
  entrypoint = "main.mjs"
}
