# Programs that ask for more than they are given. Each one is stopped, and the result says truthfully why, from the
# kernel's own counters. The expect blocks turn "it was stopped for the right reason" into success.
#
#   hutch run examples/limits.hcl
#   hutch run examples/limits.hcl -o json memory
#
# needs: bwrap python3 cgroup
# expect hutch: exit 0
# expect timeout: cause timeout
# expect memory: cause oom
# expect processes: cause pids
# expect disk: cause disk
# expect output: cause output

run "timeout" {
  description = "sleeps for an hour, with a second to do it in"
  backend "bwrap" {}
  command = ["sleep", "3600"]
  limits {
    timeout = "1s"
  }
  expect {
    cause = "timeout"
  }
}

run "memory" {
  description = "wants one gigabyte of 64 MiB"
  backend "bwrap" {}
  command = ["python3", "-c", "x = bytearray(1 << 30); print(len(x))"]
  limits {
    timeout = "30s"
    memory  = "64MiB"
  }
  expect {
    cause = "oom"
  }
}

run "processes" {
  description = "starts a thousand processes where 16 may be"
  backend "bwrap" {}
  command = ["python3", "-c", "import subprocess; [subprocess.Popen(['sleep', '60']) for _ in range(1000)]"]
  limits {
    timeout = "30s"
    pids    = 16
  }
  expect {
    cause = "pids"
  }
}

run "disk" {
  description = "writes half a gigabyte where 8 MiB fit"
  backend "bwrap" {}
  command = ["python3", "-c", "f = open('/workspace/big', 'wb'); [f.write(bytes(1 << 20)) for _ in range(512)]"]
  limits {
    timeout = "30s"
    disk    = "8MiB"
  }
  expect {
    cause = "disk"
  }
}

run "output" {
  description = "never stops talking: the last 512 bytes are kept, and after 2 KiB it is ended"
  backend "bwrap" {}
  command = ["python3", "-uc", <<-PYTHON
    import time
    while True:
        print("and another thing: " + "bla " * 10)
        time.sleep(0.01)
  PYTHON
  ]
  limits {
    timeout      = "30s"
    output       = "512B"
    output_total = "2KiB"
  }
  expect {
    cause = "output"
  }
}
