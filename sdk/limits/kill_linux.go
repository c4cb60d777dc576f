package limits

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// killer kills the processes of a cgroup one by one until none is left, for kernels that cannot do it in one step.
type killer struct {
	list         func() ([]int, error) // the processes in the cgroup now
	freeze, thaw func() error          // may be nil
}

// run returns when the list is empty, or with the reason why it is not.
func (k killer) run(ctx context.Context) error {
	idle := 20 * time.Microsecond
	for {
		left, killed, err := k.round(ctx)
		if gone(err) {
			return nil
		}
		if err != nil || left == 0 {
			return err
		}
		if killed > 0 {
			idle = 20 * time.Microsecond
			continue
		}
		// What is left are processes that are on their way out of the kernel's list, for which v1 has no event.
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d processes do not end: %w", left, context.Cause(ctx))
		case <-time.After(idle):
		}
		idle = min(2*idle, 5*time.Millisecond)
	}
}

// round freezes, kills all it finds, thaws, and waits for the dead.
func (k killer) round(ctx context.Context) (left, killed int, err error) {
	if k.freeze != nil {
		if err := k.freeze(); err != nil {
			return 0, 0, err
		}
	}
	dying, left, err := k.signal()
	defer func() {
		for _, p := range dying {
			unix.Close(int(p.Fd))
		}
	}()
	if k.thaw != nil {
		if e := k.thaw(); e != nil && err == nil {
			err = e
		}
	}
	if err != nil {
		return left, len(dying), err
	}
	return left, len(dying), waitDead(ctx, dying)
}

// signal sends SIGKILL to every process listed and returns descriptors that become readable when they are dead. Each is
// named by a pidfd before the list is read once more, so that a number which the kernel has meanwhile given to somebody
// else is never signalled.
func (k killer) signal() (dying []unix.PollFd, left int, err error) {
	pids, err := k.list()
	if err != nil || len(pids) == 0 {
		return nil, 0, err
	}
	named := make(map[int]int, len(pids))
	defer func() {
		for _, fd := range named {
			unix.Close(fd)
		}
	}()
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		switch err {
		case nil:
			named[pid] = fd
		case unix.ESRCH, unix.EINVAL: // dead, or not the number of a process any more
		default:
			return nil, len(pids), fmt.Errorf("pidfd of process %d: %w", pid, err)
		}
	}
	again, err := k.list()
	if err != nil {
		return nil, len(pids), err
	}
	for _, pid := range again {
		fd, ok := named[pid]
		if !ok {
			continue
		}
		if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && err != unix.ESRCH {
			return dying, len(again), fmt.Errorf("kill process %d: %w", pid, err)
		}
		dying = append(dying, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
		delete(named, pid)
	}
	return dying, len(again), nil
}

// waitDead waits until every process is dead, if not yet reaped.
func waitDead(ctx context.Context, fds []unix.PollFd) error {
	for len(fds) > 0 {
		if ctx.Err() != nil {
			return fmt.Errorf("%d killed processes are still there: %w", len(fds), context.Cause(ctx))
		}
		if _, err := unix.Poll(fds[:1], pollStep); err != nil && err != unix.EINTR {
			return fmt.Errorf("wait for processes to end: %w", err)
		}
		if fds[0].Revents != 0 {
			fds = fds[1:]
		}
	}
	return nil
}
