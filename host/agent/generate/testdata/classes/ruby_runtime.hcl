# want: runtime main.rb:2
run "r" {
  backend "bwrap" {}
  file "main.rb" {
    content = <<-EOT
      def f
        nil.foo
      end
      f
    EOT
  }
  entrypoint = "main.rb"
}
