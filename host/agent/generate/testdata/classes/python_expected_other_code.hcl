# want: runtime
run "r" {
  backend "bwrap" {}
  file "main.py" {
    content = <<-EOT
      import sys
      sys.exit(3)
    EOT
  }
  entrypoint = "main.py"
  expect {
    exit_code = 4
  }
}
