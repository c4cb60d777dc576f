package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// forks starts args[0] processes that stay, each in its own session and deaf to signals; more than args[1] is a
// breach. Where it is stopped it leaves them behind.
func forks(args []string) verdict {
	want, limit := number(args[0]), number(args[1])
	signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	var pids []int
	var last error
	for range want {
		// vfork-like clone of a process that only sleeps: no exec, no Go runtime.
		pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		if errno != 0 {
			last = errno
			break
		}
		if pid == 0 {
			unix.RawSyscall(unix.SYS_SETSID, 0, 0, 0)
			ts := unix.Timespec{Sec: 120} // a bound, should the sandbox fail to end it
			unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0)
			unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
		pids = append(pids, int(pid))
	}
	if len(pids) <= limit {
		return held("stopped after %d: %v", len(pids), last)
	}
	for _, pid := range pids {
		_ = unix.Kill(pid, unix.SIGKILL)
		_, _ = unix.Wait4(pid, nil, 0, nil)
	}
	return breached("%d processes at once", len(pids))
}

// memory touches args[0] MiB.
func memory(args []string) verdict {
	const mib = 1 << 20
	for n := range number(args[0]) {
		b, err := unix.Mmap(-1, 0, mib, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			return held("stopped after %d MiB: %v", n, err)
		}
		for i := 0; i < mib; i += 4096 {
			b[i] = 1
		}
	}
	return breached("used %s MiB", args[0])
}

// memfds writes args[0] MiB into a memory file that no process has mapped.
func memfds(args []string) verdict {
	block := make([]byte, 1<<20)
	fd, err := unix.MemfdCreate("probe", unix.MFD_CLOEXEC)
	for n := range number(args[0]) {
		if err == nil {
			_, err = unix.Write(fd, block)
		}
		if err != nil {
			return held("stopped after %d MiB: %v", n, err)
		}
	}
	return breached("used %s MiB", args[0])
}

// manyUsers has args[0] processes use args[1] MiB each. What more than args[2] MiB of them hold a second later is a
// breach.
func manyUsers(args []string) verdict {
	if len(args) > 4 { // one of them
		if v := memory(args[1:2]); v.Breached {
			fmt.Println("used")
			time.Sleep(time.Minute)
		}
		os.Exit(1)
	}
	var all []*exec.Cmd
	for range number(args[0]) {
		c := exec.Command("/proc/self/exe", append(append([]string{"RES-08"}, args...), "one")...)
		out, err := c.StdoutPipe()
		if err == nil {
			err = c.Start()
		}
		if err != nil {
			return held("stopped at process %d: %v", len(all), err)
		}
		all = append(all, c)
		_, _ = out.Read(make([]byte, 16)) // nothing of one that was killed
	}
	time.Sleep(time.Second) // for a limit that is sampled
	alive := 0
	for _, c := range all {
		if pid, err := unix.Wait4(c.Process.Pid, nil, unix.WNOHANG, nil); pid == 0 && err == nil {
			alive++
			_ = c.Process.Kill()
			_, _ = unix.Wait4(c.Process.Pid, nil, 0, nil)
		}
	}
	if alive*number(args[1]) > number(args[2]) {
		return breached("%d processes used %s MiB each", alive, args[1])
	}
	return held("%d of %s processes are left", alive, args[0])
}

// bigFile writes args[0] MiB into each directory of args[1:] that is one. The last file stays, unless all got through.
func bigFile(args []string) verdict {
	block := make([]byte, 1<<20)
	return fill(args, func(dir string) (string, error) {
		p := filepath.Join(dir, "probe-big")
		f, err := os.Create(p)
		for n := 0; err == nil && n < number(args[0]); n++ {
			_, err = f.Write(block)
		}
		if f != nil {
			_ = f.Close()
		}
		return p, err
	})
}

// manyFiles makes args[0] files in each directory of args[1:] that is one. The last of them stay, unless all got
// through.
func manyFiles(args []string) verdict {
	return fill(args, func(dir string) (string, error) {
		dir = filepath.Join(dir, "probe-many")
		err := os.Mkdir(dir, 0o755)
		for n := 0; err == nil && n < number(args[0]); n++ {
			var f *os.File
			if f, err = os.Create(filepath.Join(dir, strconv.Itoa(n))); err == nil {
				err = f.Close()
			}
		}
		return dir, err
	})
}

// fill puts something in each directory. A file system that is full must be so when the probe ends, because that is
// what hutch looks at.
func fill(args []string, put func(dir string) (string, error)) verdict {
	var a attempts
	last := ""
	for _, dir := range args[1:] {
		if st, err := os.Stat(dir); err != nil || !st.IsDir() {
			continue
		}
		_ = os.RemoveAll(last)
		var err error
		last, err = put(dir)
		a.try(fmt.Sprintf("%s in %s", args[0], dir), err)
	}
	if len(a.lost) == 0 {
		_ = os.RemoveAll(last)
	}
	return a.verdict()
}

// printMuch writes args[0] MiB to its output.
func printMuch(args []string) verdict {
	block := bytes.Repeat([]byte("0123456789abcde\n"), 1<<16)
	for n := range number(args[0]) {
		if _, err := os.Stdout.Write(block); err != nil {
			return held("stopped after %d MiB: %v", n, err)
		}
	}
	return breached("printed %s MiB", args[0])
}

// descriptors opens args[0] of them.
func descriptors(args []string) verdict {
	var rl unix.Rlimit
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1 << 17, Max: 1 << 17}); err != nil {
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &rl); err == nil {
			rl.Cur = rl.Max
			_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &rl)
		}
	}
	want := number(args[0])
	for n := range want {
		if _, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return held("stopped after %d: %v", n, err)
		}
	}
	return breached("%d open", want)
}

func coreLimit([]string) verdict {
	// At 1 there are no dumps, neither into a file nor into a program of the host; at 0 there are those into a program.
	for _, limit := range []unix.Rlimit{{Cur: 0, Max: 1}, {}} {
		_ = unix.Setrlimit(unix.RLIMIT_CORE, &limit)
		_, _, _ = unix.RawSyscall(unix.SYS_SETRLIMIT, unix.RLIMIT_CORE, uintptr(unsafe.Pointer(&limit)), 0)
		// A pointer whose low half is 0 looks like none to a filter that sees no more than that.
		at, _, errno := unix.RawSyscall6(unix.SYS_MMAP, 1<<32, 4096, unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED_NOREPLACE, ^uintptr(0), 0)
		if errno == 0 { // the page holds the zeros of a limit
			_, _, _ = unix.RawSyscall6(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_CORE, at, 0, 0, 0)
		}
	}
	var now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &now); err != nil {
		return breached("%v", err)
	}
	if now.Cur != 1 || now.Max != 1 {
		return breached("limit %d, hard limit %d", now.Cur, now.Max)
	}
	return held("limit 1 for good")
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(errors.New("probe: not a number: " + s))
	}
	return n
}
