# Programs that ask for more than they are given. Each one is stopped, and the result says truthfully why. The expect
# blocks turn "it was stopped for the right reason" into success.
#
#   hutch run examples/limits.hcl
#   hutch run examples/limits.hcl -o json memory
#
# Memory and processes are best held by a cgroup, which counts what it refuses: the cause is then oom or pids. Where you
# may write none, an rlimit holds them. It counts nothing, so that all hutch knows is that the program, which got an
# error from the system, ended by itself: the cause is exited. `hutch plan` says which one holds, and `hutch doctor`
# how to get a cgroup.
#
# needs: bwrap python3
# expect hutch: exit 0
# expect timeout: cause timeout
# expect memory: cause oom, with an rlimit exited
# expect processes: cause pids, with an rlimit exited
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
    cause = ["oom", "exited"]
    stdout {
      empty = true # it did not get as far as printing
    }
  }
}

run "processes" {
  description = "starts a thousand processes where 16 may be"
  backend "bwrap" {}
  command = ["python3", "-c", <<-PYTHON
    import subprocess
    for n in range(1000):
        subprocess.Popen(["sleep", "60"])
    print("there are a thousand now")
  PYTHON
  ]
  limits {
    timeout = "30s"
    pids    = 16
  }
  expect {
    cause = ["pids", "exited"]
    stdout {
      empty = true
    }
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
