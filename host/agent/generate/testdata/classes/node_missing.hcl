# want: missing_dependency main.js:1
run "r" {
  backend "bwrap" {}
  file "main.js" {
    content = <<-EOT
      require("surely-no-such-package");
    EOT
  }
  entrypoint = "main.js"
}
