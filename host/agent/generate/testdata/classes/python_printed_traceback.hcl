# want: runtime main.py:3
run "r" {
  backend "bwrap" {}
  file "main.py" {
    content = <<-EOT
      import sys, traceback
      try:
        1 / 0
      except Exception:
        traceback.print_exc()
        sys.exit(1)
    EOT
  }
  entrypoint = "main.py"
}
