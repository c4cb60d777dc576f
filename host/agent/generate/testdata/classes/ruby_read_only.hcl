# want: policy main.rb:1
run "r" {
  backend "bwrap" {}
  file "main.rb" {
    content = <<-EOT
      File.write(ENV["HUTCH_INPUT"] + "/x", "")
    EOT
  }
  entrypoint = "main.rb"
}
