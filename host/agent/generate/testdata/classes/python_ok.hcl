# want: ok
run "r" {
  backend "bwrap" {}
  file "main.py" {
    content = <<-EOT
      print(1)
    EOT
  }
  entrypoint = "main.py"
}
