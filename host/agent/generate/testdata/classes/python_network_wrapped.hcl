# want: network main.py:5
run "r" {
  backend "bwrap" {}
  file "main.py" {
    content = <<-EOT
      import socket
      try:
        socket.create_connection(("example.com", 80), 5)
      except OSError as e:
        raise RuntimeError("no data") from e
    EOT
  }
  entrypoint = "main.py"
}
