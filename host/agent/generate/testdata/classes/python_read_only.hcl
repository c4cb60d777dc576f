# want: policy main.py:2
run "r" {
  backend "bwrap" {}
  file "main.py" {
    content = <<-EOT
      import os
      open(os.environ["HUTCH_INPUT"] + "/x", "w")
    EOT
  }
  entrypoint = "main.py"
}
