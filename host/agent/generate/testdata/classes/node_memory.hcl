# want: memory
run "r" {
  backend "bwrap" {}
  file "main.js" {
    content = <<-EOT
      const a = []; for (;;) a.push(new Array(1000).fill(a.length).map(x => ({ x })));
    EOT
  }
  entrypoint = "main.js"
  env        = { NODE_OPTIONS = "--max-old-space-size=64" }
}
