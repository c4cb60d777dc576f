# want: missing_dependency
run "r" {
  backend "bwrap" {}
  file "main.mjs" {
    content = <<-EOT
      import x from "surely-no-such-package";
    EOT
  }
  entrypoint = "main.mjs"
}
