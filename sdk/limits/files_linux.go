package limits

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// write sets one control file with one write call, which is how the kernel wants it, and never makes the file.
func write(path, value string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		for {
			if _, err = unix.Write(fd, []byte(value)); err != unix.EINTR {
				break
			}
		}
		unix.Close(fd)
	}
	if err != nil {
		return fmt.Errorf("write %q to %s: %w", value, path, err)
	}
	return nil
}

func exists(path string) bool {
	var st unix.Stat_t
	return unix.Stat(path, &st) == nil
}

// readUint reads a file that holds one number; "max" is ok=false, as is a file that does not exist.
func readUint(path string) (n uint64, ok bool) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err = strconv.ParseUint(string(bytes.TrimSpace(data)), 10, 64)
	return n, err == nil
}

// readKeyed reads a file of "key number" lines; nil when it does not exist.
func readKeyed(path string) map[string]uint64 {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	out := make(map[string]uint64)
	for line := range strings.Lines(string(data)) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			if n, err := strconv.ParseUint(v, 10, 64); err == nil {
				out[k] = n
			}
		}
	}
	return out
}

// readPIDs reads a file with one process id in each line.
func readPIDs(path string) ([]int, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var out []int
	for line := range strings.Lines(string(data)) {
		pid, err := strconv.Atoi(strings.TrimSpace(line))
		// Zero stands for a process of another pid namespace, which this one cannot name.
		if err == nil && pid > 0 {
			out = append(out, pid)
		}
	}
	return out, nil
}

// gone recognises the errors of a cgroup that was removed: its directory is not there, or its open files have died.
func gone(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV)
}

// undoTime bounds the removal of a group that was just made and holds no process.
const undoTime = 5 * time.Second

// pollStep is how many milliseconds a poll lasts before the context is looked at again.
const pollStep = 20

// rmdir removes an empty cgroup. The kernel refuses for a moment after the last process has ended, until that process
// has left the scheduler; v1 has no event for it, so the retries begin at 20 µs and grow to 5 ms.
func rmdir(ctx context.Context, dir string) error {
	delay := 20 * time.Microsecond
	for {
		err := unix.Rmdir(dir)
		if err == nil || err == unix.ENOENT {
			return nil
		}
		if err != unix.EBUSY {
			return fmt.Errorf("remove cgroup %s: %w", dir, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("remove cgroup %s: still in use: %w", dir, context.Cause(ctx))
		case <-time.After(delay):
		}
		delay = min(2*delay, 5*time.Millisecond)
	}
}

// removeTree removes dir and the cgroups below it, deepest first. What runs in them must be dead.
func removeTree(ctx context.Context, dir string) error {
	ents, err := os.ReadDir(dir)
	if err != nil {
		if gone(err) {
			return nil
		}
		return err
	}
	for _, e := range ents {
		if e.IsDir() {
			if err := removeTree(ctx, dir+"/"+e.Name()); err != nil {
				return err
			}
		}
	}
	return rmdir(ctx, dir)
}
