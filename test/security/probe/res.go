package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// forks starts args[0] processes that stay; more than args[1] is a breach.
func forks(args []string) verdict {
	want, limit := number(args[0]), number(args[1])
	var pids []int
	defer func() {
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL)
			_, _ = unix.Wait4(pid, nil, 0, nil)
		}
	}()
	var last error
	for range want {
		// vfork-like clone of a process that only sleeps: no exec, no Go runtime.
		pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		if errno != 0 {
			last = errno
			break
		}
		if pid == 0 {
			ts := unix.Timespec{Sec: 30}
			for {
				unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0)
			}
		}
		pids = append(pids, int(pid))
	}
	if len(pids) > limit {
		return breached("%d processes at once", len(pids))
	}
	return held("stopped after %d: %v", len(pids), last)
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

// bigFile writes args[0] MiB into each directory of args[1:].
func bigFile(args []string) verdict {
	var a attempts
	block := make([]byte, 1<<20)
	for _, dir := range args[1:] {
		p := filepath.Join(dir, "probe-big")
		f, err := os.Create(p)
		for n := 0; err == nil && n < number(args[0]); n++ {
			_, err = f.Write(block)
		}
		if f != nil {
			_ = f.Close()
			_ = os.Remove(p)
		}
		a.try(fmt.Sprintf("%s MiB in %s", args[0], dir), err)
	}
	return a.verdict()
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
	var rl unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &rl); err != nil {
		return breached("%v", err)
	}
	if rl.Max != 0 {
		return breached("hard limit %d", rl.Max)
	}
	return held("hard limit 0")
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(errors.New("probe: not a number: " + s))
	}
	return n
}
