package guest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/process/procstat"
)

// Every command of a sandbox is known by a file that is named after the first process of its namespaces: PID-STARTTIME.
// So another process of this program finds it, and never takes a stranger for it that has got its number.

// register says that pid is the first process of a command. The returned function takes that back.
func (b box) register(pid int) (forget func(), err error) { return register(b.run("commands"), pid) }

func register(dir string, pid int) (forget func(), err error) {
	stat, err := procstat.Of(pid)
	if err != nil {
		return nil, err
	}
	name := filepath.Join(dir, fmt.Sprintf("%d-%d", pid, stat.Start))
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		return nil, err
	}
	return func() { _ = os.Remove(name) }, nil // destroying the sandbox has removed it
}

// killAll kills every command of the sandbox, whichever process started it, and waits until nothing is left of them.
func (b box) killAll(ctx context.Context) error { return killAll(ctx, b.run("commands")) }

func killAll(ctx context.Context, dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var fds []int
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	for _, e := range entries {
		pidText, start, _ := strings.Cut(e.Name(), "-")
		pid, err := strconv.Atoi(pidText)
		if err != nil {
			continue
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err == unix.ESRCH {
			continue
		}
		if err != nil {
			return fmt.Errorf("find the command %d: %w", pid, err)
		}
		fds = append(fds, fd)
		if now, err := procstat.Of(pid); err != nil || strconv.FormatUint(now.Start, 10) != start {
			continue // another one has its number
		}
		if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && err != unix.ESRCH {
			return fmt.Errorf("kill the command %d: %w", pid, err)
		}
		if err := waitGone(ctx, fd); err != nil {
			return fmt.Errorf("the command %d does not end: %w", pid, err)
		}
	}
	return nil
}

// waitGone waits until the process behind a pidfd has ended.
func waitGone(ctx context.Context, fd int) error {
	for ctx.Err() == nil {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		if err != nil && err != unix.EINTR {
			return err
		}
		if n > 0 {
			return nil
		}
	}
	return context.Cause(ctx)
}
