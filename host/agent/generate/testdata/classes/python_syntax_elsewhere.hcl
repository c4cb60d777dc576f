# want: syntax lib/util.py:1
run "r" {
  backend "bwrap" {}
  file "main.py" {
    content = <<-EOT
      from lib.util import f
      f()
    EOT
  }
  file "lib/util.py" {
    content = <<-EOT
      def f(:
        pass
    EOT
  }
  entrypoint = "main.py"
}
