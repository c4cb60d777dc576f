# want: runtime main.py:2
run "r" {
  backend "bwrap" {}
  file "main.py" {
    content = <<-EOT
      import json
      json.loads("{")
    EOT
  }
  entrypoint = "main.py"
}
