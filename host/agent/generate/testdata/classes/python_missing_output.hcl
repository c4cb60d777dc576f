# want: missing_output
run "r" {
  backend "bwrap" {}
  file "main.py" {
    content = <<-EOT
      open("report.json", "w").write("{}")
    EOT
  }
  entrypoint = "main.py"
  expect {
    outputs = ["report.json"]
  }
}
