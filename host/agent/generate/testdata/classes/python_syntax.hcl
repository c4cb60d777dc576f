# want: syntax main.py:2
run "r" {
  backend "bwrap" {}
  file "main.py" {
    content = <<-EOT
      x = 1
      if x ==
        print(x)
    EOT
  }
  entrypoint = "main.py"
}
