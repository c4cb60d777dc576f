# want: timeout
run "r" {
  backend "bwrap" {}
  file "main.py" {
    content = <<-EOT
      while True: pass
    EOT
  }
  entrypoint = "main.py"
  limits {
    timeout = "1s"
  }
}
