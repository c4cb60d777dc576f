# want: missing_dependency main.rb:1
run "r" {
  backend "bwrap" {}
  file "main.rb" {
    content = <<-EOT
      require "surely_no_such"
    EOT
  }
  entrypoint = "main.rb"
}
