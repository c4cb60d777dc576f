# A program in a container without privileges, where namespaces are refused: Landlock and a system call filter confine it.
# That is weaker, so it is named, here or with --min-isolation process. Paths are this machine's; variables name them.
#
#   hutch run examples/landlock.hcl
#
# needs: landlock python3
# expect hutch: exit 0
# expect confined: stdout "no network, no other files"
# expect confined: output report.txt

run "confined" {
  backend "landlock" {}

  file "main.py" {
    content = <<-PY
      import os, socket

      refused = []
      for name, attempt in {"network": socket.socket, "other files": lambda: os.listdir("/home")}.items():
          try:
              attempt()
          except PermissionError:
              refused.append("no " + name)
      print(", ".join(refused))
      with open(os.path.join(os.environ["HUTCH_OUTPUT"], "report.txt"), "w") as report:
          report.write("written\n")
    PY
  }
  entrypoint = "main.py"
}
