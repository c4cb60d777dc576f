# want: runtime main.py:2
run "r" {
  backend "bwrap" {}
  file "main.py" {
    content = <<-EOT
      def f(d):
        return d["missing"]
      f({})
    EOT
  }
  entrypoint = "main.py"
}
