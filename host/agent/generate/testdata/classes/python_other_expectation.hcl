# want: unexpected
run "r" {
  backend "bwrap" {}
  file "main.py" {
    content = <<-EOT
      print("no")
    EOT
  }
  entrypoint = "main.py"
  expect {
    stdout {
      contains = ["yes"]
    }
  }
}
