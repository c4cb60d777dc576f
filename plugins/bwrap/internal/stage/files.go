package stage

import (
	"errors"
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/bwrap/internal/wire"
)

// The files of a root are made by bare system calls: package os asks the kernel six times more for each file, whether
// it can be polled and whether it is there already, and a root has some fifty of them.

// readCopy turns a copy into the regular file it shall be.
func readCopy(f *wire.File) {
	if f.Kind != wire.Copy {
		return
	}
	if data, err := os.ReadFile(string(f.Data)); err == nil {
		f.Kind, f.Data = wire.Regular, data
	}
}

func makeFile(f *wire.File) error {
	switch f.Kind {
	case wire.Copy:
		return nil // the host has none
	case wire.Dir:
		if err := makeDirs(f.Path); err != nil {
			return err
		}
		if f.Mode == dirMode {
			return nil
		}
		if err := unix.Chmod(f.Path, f.Mode); err != nil {
			return fmt.Errorf("set the mode of %s: %w", f.Path, err)
		}
		return nil
	case wire.Symlink:
		return inDir(f.Path, func() error { return unix.Symlink(string(f.Data), f.Path) })
	case wire.Regular:
		return inDir(f.Path, func() error { return writeFile(f.Path, f.Data, f.Mode) })
	}
	return fmt.Errorf("%s: no such kind of file: %q", f.Path, f.Kind)
}

// dirMode is what a directory gets, with the umask of a holder.
const dirMode = 0o755

// makeDirs makes a directory and all above it, unless they are there.
func makeDirs(p string) error {
	err := inDir(p, func() error { return unix.Mkdir(p, dirMode) })
	if errors.Is(err, unix.EEXIST) {
		return nil // what is no directory shows when something is made in it
	}
	return err
}

// inDir makes something at p, and before it the directories above, should they be missing.
func inDir(p string, fn func() error) error {
	err := fn()
	if errors.Is(err, unix.ENOENT) {
		if err = makeDirs(path.Dir(p)); err == nil {
			err = fn()
		}
	}
	if err != nil {
		return fmt.Errorf("make %s: %w", p, err)
	}
	return nil
}

func writeFile(p string, data []byte, mode uint32) error {
	fd, err := unix.Open(p, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_CLOEXEC, mode)
	if err != nil {
		return err
	}
	for len(data) > 0 && err == nil {
		var n int
		n, err = unix.Write(fd, data)
		data = data[max(n, 0):]
	}
	return errors.Join(err, unix.Close(fd))
}

// mountpointLike makes at a directory if fd is one, else an empty file, unless it is there.
func mountpointLike(fd int, at string) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return makeDirs(at)
	}
	return inDir(at, func() error {
		fd, err := unix.Open(at, unix.O_CREAT|unix.O_RDONLY|unix.O_CLOEXEC, 0o644)
		if err != nil {
			return err
		}
		return unix.Close(fd)
	})
}
