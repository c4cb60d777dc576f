# want: syntax main.py:2
run "r" {
  backend "bwrap" {}
  file "main.py" {
    content = <<-EOT
      def f():
      return 1
    EOT
  }
  entrypoint = "main.py"
}
