# want: memory
run "r" {
  backend "bwrap" {}
  file "main.py" {
    content = <<-EOT
      a = []
      while True: a.append(bytearray(1 << 20))
    EOT
  }
  entrypoint = "main.py"
  limits {
    memory = "64MiB"
  }
}
