# want: runtime main.js:2
run "r" {
  backend "bwrap" {}
  file "main.js" {
    content = <<-EOT
      const o = undefined;
      o.x;
    EOT
  }
  entrypoint = "main.js"
}
