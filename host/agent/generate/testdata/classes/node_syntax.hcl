# want: syntax main.js:2
run "r" {
  backend "bwrap" {}
  file "main.js" {
    content = <<-EOT
      const x = 1;
      foo(x;
    EOT
  }
  entrypoint = "main.js"
}
