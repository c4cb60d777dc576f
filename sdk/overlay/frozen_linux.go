package overlay

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// A frozen layer is a copy of an upper layer that several forks lie over and nobody writes to. It is the directory
// ID.layer of a directory of such layers, with the copy in upper, and users, a file that has a hard link with each
// user. So the kernel counts the users, and one whose directory is removed in whatever way counts no more.

const (
	frozenSuffix = ".layer"
	frozenUsers  = "users"
)

// FrozenAt is where the content of the frozen layer id in the directory layers lies.
func FrozenAt(layers, id string) string { return filepath.Join(layers, id+frozenSuffix, "upper") }

// Freeze copies the upper layer upper, which nobody may write to meanwhile, to a frozen layer id in the directory
// layers. use is the path of its first user's link, on the same file system.
func Freeze(ctx context.Context, upper, layers, id, use string) error {
	dir := filepath.Join(layers, id+frozenSuffix)
	err := lockFrozen(layers, func() error {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, frozenUsers), nil, 0o600); err != nil {
			return err
		}
		return UseFrozen(layers, id, use)
	})
	if err != nil {
		return err
	}
	return Copy(ctx, upper, FrozenAt(layers, id), nil)
}

// UseFrozen makes use the link of another user of a frozen layer. The caller knows that it has a user meanwhile.
func UseFrozen(layers, id, use string) error {
	return os.Link(filepath.Join(layers, id+frozenSuffix, frozenUsers), use)
}

// SweepFrozen calls remove with each frozen layer in the directory layers that nobody uses.
func SweepFrozen(layers string, remove func(path string) error) error {
	entries, err := os.ReadDir(layers)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var found []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), frozenSuffix) {
			found = append(found, filepath.Join(layers, e.Name()))
		}
	}
	if len(found) == 0 {
		return nil
	}
	return lockFrozen(layers, func() (err error) {
		for _, dir := range found {
			var st unix.Stat_t
			serr := unix.Lstat(filepath.Join(dir, frozenUsers), &st)
			if serr == nil && st.Nlink > 1 || serr != nil && serr != unix.ENOENT {
				continue
			}
			err = errors.Join(err, remove(dir))
		}
		return err
	})
}

// lockFrozen calls fn while no other process makes or removes frozen layers there.
func lockFrozen(layers string, fn func() error) error {
	d, err := os.Open(layers)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.Close()
	for {
		if err := unix.Flock(int(d.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			if err != nil {
				return &fs.PathError{Op: "lock", Path: layers, Err: err}
			}
			return fn()
		}
	}
}

// CopyEmpty makes the directory to, which has what [Copy] gives it, without what is in from.
func CopyEmpty(from, to string) error {
	c := &copier{exact: true}
	top := &target{name: to}
	f, err := os.OpenFile(from, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	defer top.close()
	if err := top.open(); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return &fs.PathError{Op: "stat", Path: from, Err: err}
	}
	return c.like(int(f.Fd()), "", top.fd(), &st)
}
