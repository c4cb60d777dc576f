# want: missing_dependency main.py:1
run "r" {
  backend "bwrap" {}
  file "main.py" {
    content = <<-EOT
      import surely_no_such_module
    EOT
  }
  entrypoint = "main.py"
}
