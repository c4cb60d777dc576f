package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// removeResource removes something that an intent of ours names. What is gone already is success.
func removeResource(ctx context.Context, r Resource) error {
	if !filepath.IsAbs(r.Path) || filepath.Clean(r.Path) != r.Path || r.Path == "/" {
		return errors.New("its path is not one that hutch records")
	}
	fi, err := os.Lstat(r.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	switch r.Kind {
	case ResourceCgroup:
		return removeCgroup(ctx, r.Path)
	case ResourceDir:
		if !fi.IsDir() {
			return errors.New("it is not a directory any more")
		}
		return removeAll(r.Path)
	case ResourceMount:
		err := unix.Unmount(r.Path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EINVAL) { // not a mount point any more
			return nil
		}
		return err
	case ResourceSocket:
		if fi.Mode()&(fs.ModeSocket|fs.ModeNamedPipe) == 0 {
			return errors.New("it is neither a socket nor a FIFO any more")
		}
		return os.Remove(r.Path)
	}
	return fmt.Errorf("a resource of kind %q is not known to this hutch", r.Kind)
}

// cgroupPatience bounds how long the kernel may take to bury the processes of a cgroup.
const cgroupPatience = 10 * time.Second

// removeCgroup kills everything in a cgroup and below, and removes the directories.
func removeCgroup(ctx context.Context, dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return err
	}
	if t := uint32(st.Type); t != unix.CGROUP_SUPER_MAGIC && t != unix.CGROUP2_SUPER_MAGIC {
		return errors.New("it is not a cgroup")
	}
	ctx, cancel := context.WithTimeout(ctx, cgroupPatience)
	defer cancel()
	for {
		busy, err := reapCgroup(dir)
		if !busy {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("processes in it do not die: %w", err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// reapCgroup kills once and tries to remove once, children first; busy says that it is worth another try.
func reapCgroup(dir string) (busy bool, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		if e.IsDir() {
			if busy, err := reapCgroup(filepath.Join(dir, e.Name())); err != nil {
				return busy, err
			}
		}
	}
	procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	for _, field := range strings.Fields(string(procs)) {
		pid, err := strconv.Atoi(field)
		if err != nil || pid <= 0 { // 0 is a process that this pid namespace cannot see, nor kill
			return false, fmt.Errorf("process %q in it cannot be killed from here", field)
		}
		if pid == os.Getpid() {
			return false, errors.New("this very process is in it")
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return false, fmt.Errorf("kill %d: %w", pid, err)
		}
	}
	err = unix.Rmdir(dir)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return errors.Is(err, unix.EBUSY), err
}
