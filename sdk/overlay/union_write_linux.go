package overlay

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/safefile"
)

// The methods of this file write to the upper layer what an overlay file system would: copies, whiteouts and opaque
// directories. They are for unions that no overlay is mounted over; one that is must not change behind its back.
// Each shows its result in one step, and goes to no disk before it returns.

// WriteFile replaces the file name with what r holds, or makes it, and the directories it needs with mode 0755. A
// symbolic link is followed inside the union. What is no regular file is not replaced.
func (u *Union) WriteFile(name string, r io.Reader, mode fs.FileMode) error {
	return u.change("write", name, func() error {
		p, err := u.findToMake(name, true)
		if err != nil {
			return err
		}
		defer p.close()
		if p.name == "" {
			return unix.EISDIR
		}
		_, st, err := u.look(p.dir(), p.name)
		if err == nil && !isRegular(st) {
			if isDir(st) {
				return unix.EISDIR
			}
			return safefile.Refuse(name, safefile.ModeOf(st.Mode), 1, 0, -1)
		}
		if err != nil && err != unix.ENOENT {
			return err
		}
		up, err := u.upperDir(p)
		if err != nil {
			return err
		}
		defer unix.Close(up)
		return putFile(up, p.name, r, mode)
	})
}

// putFile writes a file beside name and moves it there.
func putFile(up int, name string, r io.Reader, mode fs.FileMode) error {
	temp := tempName()
	fd, err := unix.Openat(up, temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = io.Copy(f, r)
	if err = errors.Join(err, f.Chmod(mode), f.Close()); err == nil {
		err = unix.Renameat(up, temp, up, name)
	}
	if err != nil {
		_ = unix.Unlinkat(up, temp, 0)
	}
	return err
}

// MkdirAll makes a directory, and those it needs, with the mode. One that is there is left as it is.
func (u *Union) MkdirAll(name string, mode fs.FileMode) error {
	return u.change("mkdir", name, func() error { return u.mkdirAll(name, mode) })
}

func (u *Union) mkdirAll(name string, mode fs.FileMode) error {
	p, err := u.find(name, true)
	if err == unix.ENOENT && path.Dir(name) != "." {
		if err := u.mkdirAll(path.Dir(name), mode); err != nil {
			return err
		}
		p, err = u.find(name, true)
	}
	if err != nil {
		return err
	}
	defer p.close()
	if p.name == "" {
		return nil
	}
	switch _, st, err := u.look(p.dir(), p.name); {
	case err == nil && isDir(st):
		return nil
	case err == nil:
		return unix.ENOTDIR
	case err != unix.ENOENT:
		return err
	}
	if is, err := u.find(name, false); err == nil {
		_, _, err = u.look(is.dir(), is.name)
		is.close()
		if err == nil {
			return unix.EEXIST // a link that leads to nothing
		}
	}
	up, err := u.upperDir(p)
	if err != nil {
		return err
	}
	defer unix.Close(up)
	return u.mkdirAt(up, p.name, mode, nil)
}

// mkdirAt makes a directory in the upper layer, where nothing is to be seen of that name: it hides what the lower layer
// may have there. With like, it takes the place of that lower directory instead, which goes on to show through.
func (u *Union) mkdirAt(up int, name string, mode fs.FileMode, like *unix.Stat_t) (err error) {
	temp := tempName()
	if err := unix.Mkdirat(up, temp, 0o700); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = unix.Unlinkat(up, temp, unix.AT_REMOVEDIR)
		}
	}()
	fd, err := openDir(up, temp)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if like != nil {
		mode = safefile.ModeOf(like.Mode)
		if err := unix.Fchown(fd, int(like.Uid), int(like.Gid)); err != nil && err != unix.EPERM {
			return err
		}
	}
	if err := unix.Fchmod(fd, safefile.Bits(mode)); err != nil {
		return err
	}
	var st unix.Stat_t
	if unix.Fstatat(up, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return unix.Renameat(up, temp, up, name)
	}
	// A whiteout is there, so something below is hidden, and has to stay so.
	if err := unix.Fsetxattr(fd, u.marks+"opaque", []byte("y"), 0); err != nil {
		return err
	}
	if err := unix.Renameat2(up, temp, up, name, unix.RENAME_EXCHANGE); err != nil {
		return err
	}
	return unix.Unlinkat(up, temp, 0)
}

// Symlink makes a symbolic link to target; what is there, unless it is a directory, is replaced.
func (u *Union) Symlink(target, name string) error {
	return u.change("symlink", name, func() error {
		p, err := u.findToMake(name, false)
		if err != nil {
			return err
		}
		defer p.close()
		if _, st, err := u.look(p.dir(), p.name); p.name == "" || err == nil && isDir(st) {
			return unix.EISDIR
		}
		up, err := u.upperDir(p)
		if err != nil {
			return err
		}
		defer unix.Close(up)
		temp := tempName()
		if err := unix.Symlinkat(target, up, temp); err != nil {
			return err
		}
		if err = unix.Renameat(up, temp, up, p.name); err != nil {
			_ = unix.Unlinkat(up, temp, 0)
		}
		return err
	})
}

// Chmod sets the permissions of a file or directory. A symbolic link is followed inside the union.
func (u *Union) Chmod(name string, mode fs.FileMode) error {
	return u.change("chmod", name, func() error {
		p, err := u.find(name, true)
		if err != nil {
			return err
		}
		defer p.close()
		if p.name == "" {
			return unix.Fchmod(u.top.up, safefile.Bits(mode))
		}
		layer, st, err := u.look(p.dir(), p.name)
		if err != nil {
			return err
		}
		if !isDir(st) && !isRegular(st) {
			return safefile.Refuse(name, safefile.ModeOf(st.Mode), 1, 0, -1)
		}
		up, err := u.upperDir(p)
		if err != nil {
			return err
		}
		defer unix.Close(up)
		switch {
		case layer == Upper:
			return chmodAt(up, p.name, mode)
		case isDir(st):
			if err := u.mkdirAt(up, p.name, 0, &st); err != nil {
				return err
			}
			return chmodAt(up, p.name, mode)
		}
		fd, _, err := openFile(p.dir().lo, p.name, name, -1)
		if err != nil {
			return err
		}
		f := os.NewFile(uintptr(fd), name)
		defer f.Close()
		return putFile(up, p.name, f, mode)
	})
}

// chmodAt changes the mode of what is there itself, a file or a directory, and never of what a link leads to.
func chmodAt(dir int, name string, mode fs.FileMode) error {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if !isDir(st) && (!isRegular(st) || st.Nlink > 1) {
		return unix.EPERM
	}
	return unix.Chmod(fdPath(fd), safefile.Bits(mode))
}

// Remove removes what is at a path, not following a link at its end; a directory, with all that is in it, only when
// recursive. What the lower layer holds of it is hidden by a whiteout.
func (u *Union) Remove(name string, recursive bool) error {
	return u.change("remove", name, func() error {
		p, err := u.find(name, false)
		if err != nil {
			return err
		}
		defer p.close()
		if p.name == "" {
			return unix.EBUSY
		}
		layer, st, err := u.look(p.dir(), p.name)
		if err != nil {
			return err
		}
		if isDir(st) && !recursive {
			return unix.EISDIR
		}
		below := false
		if p.dir().lo >= 0 {
			var lower unix.Stat_t
			below = unix.Fstatat(p.dir().lo, p.name, &lower, unix.AT_SYMLINK_NOFOLLOW) == nil
		}
		up, err := u.upperDir(p)
		if err != nil {
			return err
		}
		defer unix.Close(up)
		if !below {
			return removeTree(up, p.name)
		}
		temp := tempName()
		if err := unix.Mknodat(up, temp, unix.S_IFCHR, 0); err != nil {
			return err
		}
		flags := uint(0)
		if layer == Upper && isDir(st) {
			flags = unix.RENAME_EXCHANGE // a rename replaces no directory by a file
		}
		if err := unix.Renameat2(up, temp, up, p.name, flags); err != nil {
			_ = unix.Unlinkat(up, temp, 0)
			return err
		}
		if flags != 0 {
			return removeTree(up, temp)
		}
		return nil
	})
}

// removeTree removes a file, or a directory with all that is in it, also where its modes forbid it.
func removeTree(dir int, name string) error {
	err := unix.Unlinkat(dir, name, 0)
	if err != unix.EISDIR && err != unix.EPERM {
		return err
	}
	fd, err := openDir(dir, name)
	if err == unix.EACCES {
		if err = chmodAt(dir, name, 0o700); err == nil {
			fd, err = openDir(dir, name)
		}
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	names, err := readNames(fd, Upper, make([]byte, 8<<10), DefaultMaxEntries, nil, nil)
	for _, n := range names {
		rerr := removeTree(fd, n.Name)
		if rerr == unix.EACCES {
			_ = unix.Fchmod(fd, 0o700)
			rerr = removeTree(fd, n.Name)
		}
		err = errors.Join(err, rerr)
	}
	if err != nil {
		return err
	}
	return unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
}

// change runs one writing method alone.
func (u *Union) change(op, name string, fn func() error) error {
	u.write <- struct{}{}
	defer func() { <-u.write }()
	err := ErrNoUpper
	if u.top.up >= 0 {
		err = fn()
	}
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// findToMake is find for a path whose directories are made where they are missing.
func (u *Union) findToMake(name string, follow bool) (place, error) {
	p, err := u.find(name, follow)
	if err == unix.ENOENT && path.Dir(name) != "." {
		if err := u.mkdirAll(path.Dir(name), 0o755); err != nil {
			return p, err
		}
		return u.find(name, follow)
	}
	return p, err
}

// upperDir opens the directory of a place in the upper layer, where it is made when only the lower one has it.
func (u *Union) upperDir(p place) (int, error) {
	names := strings.Split(p.path, "/")
	at, err := openDir(u.top.up, ".")
	for i, d := range p.dirs[:len(p.dirs)-1] {
		if err != nil {
			return -1, err
		}
		parent := at
		at, err = openDir(parent, names[i])
		if err == unix.ENOENT {
			var st unix.Stat_t
			if err = unix.Fstatat(d.lo, names[i], &st, unix.AT_SYMLINK_NOFOLLOW); err == nil {
				if err = u.mkdirAt(parent, names[i], 0, &st); err == nil {
					at, err = openDir(parent, names[i])
				}
			}
		}
		unix.Close(parent)
	}
	return at, err
}

// tempName is a name that nothing else has. It begins with a dot and shows whose it is, should a crash leave it.
func tempName() string { return ".hutch-union-" + rand.Text() }
