# want: unexpected
run "r" {
  backend "bwrap" {}
  file "main.py" {
    content = <<-EOT
      print("well")
    EOT
  }
  entrypoint = "main.py"
  expect {
    exit_code = 4
  }
}
