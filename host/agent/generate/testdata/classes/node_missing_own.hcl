# want: missing_dependency main.js:1
run "r" {
  backend "bwrap" {}
  file "main.js" {
    content = <<-EOT
      require("./helper");
    EOT
  }
  entrypoint = "main.js"
}
