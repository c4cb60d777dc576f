package descendants

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/supervise/procstat"
)

// batch is how many processes are held by a descriptor at a time.
const batch = 256

// Supported says why descendants cannot be found on this machine, nil when they can.
func Supported() error {
	if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid())); err != nil {
		return errors.New("this kernel does not list children below /proc (CONFIG_PROC_CHILDREN): descendants can only be " +
			"found by a cgroup")
	}
	return nil
}

// Of lists the living processes below pid, parents before children.
func Of(pid int) []int { return Below(Children(pid)) }

// Below lists the living processes among roots and their descendants, parents
// before children.
func Below(roots []int) (out []int) {
	queue := roots
	seen := make(map[int]bool)
	for len(queue) > 0 {
		pid := queue[0]
		queue = queue[1:]
		if seen[pid] {
			continue
		}
		seen[pid] = true
		if procstat.Alive(pid) {
			out = append(out, pid)
		}
		queue = append(queue, Children(pid)...)
	}
	return out
}

// Children lists the children of all threads of a process, zombies too; none when
// it is gone.
func Children(pid int) (out []int) {
	dir := "/proc/" + strconv.Itoa(pid) + "/task"
	threads, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, th := range threads {
		data, err := os.ReadFile(dir + "/" + th.Name() + "/children")
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

// Signal sends a signal to all that list lists.
func Signal(list func() []int, sig syscall.Signal) error {
	var errs []error
	_, err := hold(list(), list, func(held map[int]int) error {
		for pid, fd := range held {
			errs = append(errs, send(pid, fd, sig))
		}
		return nil
	})
	return errors.Join(append(errs, err)...)
}

// Kill stops all that list lists until no more are found, so that none can fork
// while others are killed, then kills them and waits until they are dead, and
// begins again until nothing is left. It says how many there were. It polls, on the
// calling thread; ctx ends it with an error.
func Kill(ctx context.Context, list func() []int) (n int, err error) {
	stopped := make(map[int]bool)
	stop := func(held map[int]int) error {
		for pid, fd := range held {
			if err := send(pid, fd, unix.SIGSTOP); err != nil {
				return err
			}
			stopped[pid] = true
		}
		return nil
	}
	kill := func(held map[int]int) error {
		for pid, fd := range held {
			if err := send(pid, fd, unix.SIGKILL); err != nil {
				return err
			}
		}
		for pid, fd := range held {
			if err := wait(ctx, pid, fd); err != nil {
				return err
			}
		}
		return nil
	}
	for {
		left := list()
		if len(left) == 0 {
			return n, nil
		}
		for fresh := left; len(fresh) > 0; {
			if ctx.Err() != nil {
				return n, fmt.Errorf("%d processes and more do not end: %w", len(stopped), context.Cause(ctx))
			}
			if _, err := hold(fresh, list, stop); err != nil {
				return n, err
			}
			fresh = slices.DeleteFunc(list(), func(pid int) bool { return stopped[pid] })
		}
		held, err := hold(list(), list, kill)
		n += held
		if err != nil {
			return n, err
		}
		clear(stopped)
	}
}

// hold calls fn with descriptors of the processes pids, some at a time, and says how
// many there were. Each is looked for in a second list once it is held, so that a
// number which was given to somebody else meanwhile is never taken for it. The
// descriptor is -1 where there are no such descriptors.
func hold(pids []int, list func() []int, fn func(held map[int]int) error) (n int, err error) {
	for some := range slices.Chunk(pids, batch) {
		held := make(map[int]int, len(some))
		for _, pid := range some {
			fd, e := unix.PidfdOpen(pid, 0)
			switch e {
			case nil:
				held[pid] = fd
			case unix.ESRCH, unix.EINVAL: // gone
			case unix.ENOSYS, unix.EPERM:
				held[pid] = -1
			default:
				err = errors.Join(err, fmt.Errorf("pidfd of process %d: %w", pid, e))
			}
		}
		again := make(map[int]bool)
		for _, pid := range list() {
			again[pid] = true
		}
		for pid, fd := range held {
			if !again[pid] {
				release(fd)
				delete(held, pid)
			}
		}
		n += len(held)
		err = errors.Join(err, fn(held))
		for _, fd := range held {
			release(fd)
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

func release(fd int) {
	if fd >= 0 {
		unix.Close(fd)
	}
}

// send signals a process that is held; one that is gone needs no signal.
func send(pid, fd int, sig syscall.Signal) error {
	var err error
	if fd >= 0 {
		err = unix.PidfdSendSignal(fd, sig, nil, 0)
	} else {
		err = unix.Kill(pid, sig)
	}
	if err != nil && err != unix.ESRCH {
		return fmt.Errorf("signal %s to process %d: %w", sig, pid, err)
	}
	return nil
}

// wait waits until a killed process is dead.
func wait(ctx context.Context, pid, fd int) error {
	for {
		if fd < 0 {
			if !procstat.Alive(pid) {
				return nil
			}
			_, _ = unix.Poll(nil, 1)
		} else {
			poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			if _, err := unix.Poll(poll, 20); err != nil && err != unix.EINTR {
				return fmt.Errorf("wait for process %d: %w", pid, err)
			}
			if poll[0].Revents != 0 {
				return nil
			}
		}
		if ctx.Err() != nil {
			return fmt.Errorf("process %d does not end: %w", pid, context.Cause(ctx))
		}
	}
}
