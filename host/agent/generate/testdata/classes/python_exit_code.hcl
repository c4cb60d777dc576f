# want: runtime
run "r" {
  backend "bwrap" {}
  file "main.py" {
    content = <<-EOT
      import sys
      print("bad input", file=sys.stderr)
      sys.exit(3)
    EOT
  }
  entrypoint = "main.py"
}
