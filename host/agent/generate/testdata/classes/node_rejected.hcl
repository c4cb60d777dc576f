# want: runtime main.js:1
run "r" {
  backend "bwrap" {}
  file "main.js" {
    content = <<-EOT
      async function f() { throw new Error("no"); }
      f();
    EOT
  }
  entrypoint = "main.js"
}
