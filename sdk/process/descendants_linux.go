package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// descendants lists the living processes below this one, parents before children. Where this process is the reaper of
// orphans none can leave that list but by dying.
func descendants() []int {
	queue := childrenOf(os.Getpid())
	seen := make(map[int]bool)
	var out []int
	for len(queue) > 0 {
		pid := queue[0]
		queue = queue[1:]
		if seen[pid] {
			continue
		}
		seen[pid] = true
		if alive(pid) {
			out = append(out, pid)
		}
		queue = append(queue, childrenOf(pid)...)
	}
	return out
}

// childrenOf lists the children of all threads of a process, zombies too; none when it is gone.
func childrenOf(pid int) []int {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil
	}
	var out []int
	for _, th := range threads {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, th.Name()))
		if err != nil {
			continue
		}
		for f := range strings.FieldsSeq(string(data)) {
			if n, err := strconv.Atoi(f); err == nil {
				out = append(out, n)
			}
		}
	}
	return out
}

// alive reports whether a process exists and is not just waiting to be reaped.
func alive(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	// pid (any name) state …
	i := strings.LastIndexByte(string(data), ')')
	return i > 0 && i+2 < len(data) && data[i+2] != 'Z' && data[i+2] != 'X'
}

// signalAll sends a signal to all that list lists. Each is named by a descriptor and then looked for in a second list, so
// that a number which was given to somebody else meanwhile is never signalled.
func signalAll(list func() []int, sig syscall.Signal) error {
	fds := make(map[int]int)
	for _, pid := range list() {
		if fd, err := unix.PidfdOpen(pid, 0); err == nil {
			fds[pid] = fd
		}
	}
	var errs []error
	for _, pid := range list() {
		if fd, ok := fds[pid]; ok {
			if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil && err != unix.ESRCH {
				errs = append(errs, fmt.Errorf("signal %s to process %d: %w", sig, pid, err))
			}
		}
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
	return errors.Join(errs...)
}

// killDescendants stops all processes below this one until no more are found, so that none can fork while others are
// killed, then kills them and waits until they are dead. It says how many there were.
func killDescendants(ctx context.Context) (n int, err error) {
	stopped := make(map[int]int) // pid -> pidfd
	defer func() {
		for _, fd := range stopped {
			unix.Close(fd)
		}
	}()
	for {
		if ctx.Err() != nil {
			return len(stopped), fmt.Errorf("%d processes and more do not end: %w", len(stopped), context.Cause(ctx))
		}
		found := make(map[int]int)
		for _, pid := range descendants() {
			if _, ok := stopped[pid]; ok {
				continue
			}
			fd, err := unix.PidfdOpen(pid, 0)
			switch err {
			case nil:
				found[pid], stopped[pid] = fd, fd
			case unix.ESRCH, unix.EINVAL: // gone
			default:
				return len(stopped), fmt.Errorf("pidfd of process %d: %w", pid, err)
			}
		}
		if len(found) == 0 {
			break
		}
		for _, pid := range descendants() {
			if fd, ok := found[pid]; ok {
				delete(found, pid)
				if err := unix.PidfdSendSignal(fd, unix.SIGSTOP, nil, 0); err != nil && err != unix.ESRCH {
					return len(stopped), fmt.Errorf("stop process %d: %w", pid, err)
				}
			}
		}
		for pid, fd := range found {
			unix.Close(fd)
			delete(stopped, pid)
		}
	}
	for pid, fd := range stopped {
		if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && err != unix.ESRCH {
			return len(stopped), fmt.Errorf("kill process %d: %w", pid, err)
		}
	}
	for pid, fd := range stopped {
		for {
			poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			if _, err := unix.Poll(poll, 20); err != nil && err != unix.EINTR {
				return len(stopped), fmt.Errorf("wait for process %d: %w", pid, err)
			}
			if poll[0].Revents != 0 {
				break
			}
			if ctx.Err() != nil {
				return len(stopped), fmt.Errorf("process %d does not end: %w", pid, context.Cause(ctx))
			}
		}
	}
	return len(stopped), nil
}
