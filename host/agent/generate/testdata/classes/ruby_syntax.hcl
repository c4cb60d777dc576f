# want: syntax main.rb:2
run "r" {
  backend "bwrap" {}
  file "main.rb" {
    content = <<-EOT
      x = 1
      if x then (
    EOT
  }
  entrypoint = "main.rb"
}
