# want: runtime
run "r" {
  backend "bwrap" {}
  file "main.py" {
    content = <<-EOT
      import os, signal
      os.kill(os.getpid(), signal.SIGSEGV)
      import time
      time.sleep(60)
    EOT
  }
  entrypoint = "main.py"
}
