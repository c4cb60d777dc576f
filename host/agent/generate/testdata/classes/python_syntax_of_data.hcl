# want: runtime main.py:2
run "r" {
  backend "bwrap" {}
  file "main.py" {
    content = <<-EOT
      import ast
      ast.literal_eval("1 +")
    EOT
  }
  entrypoint = "main.py"
}
