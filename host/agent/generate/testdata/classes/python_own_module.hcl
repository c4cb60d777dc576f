# want: missing_dependency main.py:1
run "r" {
  backend "bwrap" {}
  file "main.py" {
    content = <<-EOT
      import helper
    EOT
  }
  file "lib/helper.py" {
    content = <<-EOT
      x = 1
    EOT
  }
  entrypoint = "main.py"
}
