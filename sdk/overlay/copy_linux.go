package overlay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/safefile"
)

// Copy copies the directory from with all that is in it to the directory to, which is made: contents, modes, owners,
// times, hard links, and the marks of an overlay, so that the copy of an upper layer is one too. Contents share their
// blocks with the original where the file system can (btrfs, XFS), and keep their holes. No program may write to from
// meanwhile. After an error the caller removes what is there.
func Copy(ctx context.Context, from, to string, o CopyOptions) error {
	source, err := os.OpenRoot(from)
	if err != nil {
		return err
	}
	defer source.Close()
	top, err := openTop(source)
	if err != nil {
		return err
	}
	defer top.close()
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	target, err := os.Open(to)
	if err != nil {
		return err
	}
	defer target.Close()
	c := &copier{ctx: ctx, o: o, first: map[inode]string{}, to: target}
	err = c.fill(top, target, "", 0)
	if err == nil {
		err = c.like(int(top.f.Fd()), "", target)
	}
	if err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	return nil
}

type inode struct{ dev, ino uint64 }

type copier struct {
	ctx   context.Context
	o     CopyOptions
	to    *os.File
	first map[inode]string // where the first name of a file with several links was copied to
}

// fill copies what is in from to the directory to, which lies at path.
func (c *copier) fill(from dir, to *os.File, path string, depth int) error {
	if c.ctx.Err() != nil {
		return context.Cause(c.ctx)
	}
	names, more, err := from.names(DefaultMaxEntries)
	if err != nil {
		return err
	}
	if more || depth > DefaultMaxDepth {
		return ErrTooMany
	}
	for _, name := range names {
		if err := c.entry(from, to, name, join(path, name), depth); err != nil {
			return err
		}
	}
	return nil
}

// entry copies one name.
func (c *copier) entry(from dir, to *os.File, name, path string, depth int) (err error) {
	defer func() {
		if err != nil && !strings.HasPrefix(err.Error(), "\"") { // the innermost name says it all
			err = fmt.Errorf("%.200q: %w", path, err)
		}
	}()
	st, ok, err := from.stat(name)
	if err != nil || !ok {
		return err
	}
	into := int(to.Fd())
	if st.Nlink > 1 && !isDir(st) {
		id := inode{st.Dev, st.Ino}
		if earlier, ok := c.first[id]; ok {
			return unix.Linkat(int(c.to.Fd()), earlier, into, name, 0)
		}
		c.first[id] = path
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		err = c.dir(from, to, name, path, depth)
	case unix.S_IFREG:
		err = c.file(from, to, name)
	case unix.S_IFLNK:
		var target string
		if target, err = from.readlink(name, st.Size); err == nil {
			err = unix.Symlinkat(target, into, name)
		}
	default: // a whiteout is the device 0, which everybody may make
		err = unix.Mknodat(into, name, st.Mode&unix.S_IFMT, int(st.Rdev))
	}
	if err != nil {
		return err
	}
	return c.like(from.fd(), name, to)
}

func (c *copier) dir(from dir, to *os.File, name, path string, depth int) error {
	sub, err := from.sub(name)
	if err != nil {
		return err
	}
	defer sub.close()
	if err := unix.Mkdirat(int(to.Fd()), name, 0o700); err != nil {
		return err
	}
	fd, err := safefile.OpenDirAt(int(to.Fd()), name)
	if err != nil {
		return err
	}
	into := os.NewFile(uintptr(fd), name)
	defer into.Close()
	return c.fill(sub, into, path, depth+1)
}

func (c *copier) file(from dir, to *os.File, name string) error {
	in, err := from.read(name)
	if err != nil {
		return err
	}
	defer in.Close()
	fd, err := unix.Openat(int(to.Fd()), name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC,
		0o600)
	if err != nil {
		return err
	}
	out := os.NewFile(uintptr(fd), name)
	defer out.Close()
	return copyContent(out, in)
}

// copyContent shares the blocks of in where the file system can, and else copies what is no hole.
func copyContent(out, in *os.File) error {
	if unix.IoctlFileClone(int(out.Fd()), int(in.Fd())) == nil {
		return nil
	}
	st, err := in.Stat()
	if err != nil {
		return err
	}
	for at := int64(0); at < st.Size(); {
		data, err := unix.Seek(int(in.Fd()), at, unix.SEEK_DATA)
		if err == unix.ENXIO { // a hole to the end
			break
		}
		if err != nil {
			return err
		}
		end, err := unix.Seek(int(in.Fd()), data, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.NewOffsetWriter(out, data), io.NewSectionReader(in, data, end-data)); err != nil {
			return err
		}
		at = end
	}
	return out.Truncate(st.Size())
}

// read opens a regular file for reading, also against the permissions of one of ours.
func (d dir) read(name string) (*os.File, error) {
	const flags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err := unix.Openat(d.fd(), name, flags, 0)
	if err == unix.EACCES {
		var at int
		if at, err = unix.Openat(d.fd(), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err != nil {
			return nil, err
		}
		defer unix.Close(at)
		var st unix.Stat_t
		if err = errors.Join(unix.Fstat(at, &st), unix.Chmod(fdPath(at), st.Mode&0o7777|0o400)); err != nil {
			return nil, err
		}
		fd, err = unix.Open(fdPath(at), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		err = errors.Join(err, unix.Chmod(fdPath(at), st.Mode&0o7777))
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

func (d dir) readlink(name string, size int64) (string, error) {
	buf := make([]byte, max(size, unix.PathMax)+1)
	n, err := unix.Readlinkat(d.fd(), name, buf)
	return string(buf[:max(n, 0)]), err
}

// like gives name below to what the same name below from has besides its content; "" stands for the directories
// themselves.
func (c *copier) like(from int, name string, to *os.File) error {
	source, target := strings.TrimSuffix(fdPath(from)+"/"+name, "/"),
		strings.TrimSuffix(fdPath(int(to.Fd()))+"/"+name, "/")
	flags := unix.AT_SYMLINK_NOFOLLOW
	lget, lset, llist := unix.Lgetxattr, unix.Lsetxattr, unix.Llistxattr
	if name == "" { // the descriptors' links under /proc are followed
		flags, lget, lset, llist = 0, unix.Getxattr, unix.Setxattr, unix.Listxattr
	}
	var st unix.Stat_t
	if err := unix.Fstatat(unix.AT_FDCWD, source, &st, flags); err != nil {
		return err
	}
	uid, gid := st.Uid, st.Gid
	if c.o.Owner != nil {
		uid, gid = c.o.Owner(uid, gid)
	}
	if int(uid) != os.Geteuid() || int(gid) != os.Getegid() || os.Geteuid() == 0 {
		if err := unix.Fchownat(unix.AT_FDCWD, target, int(uid), int(gid), flags); err != nil {
			return err
		}
	}
	if err := copyXattrs(source, target, llist, lget, lset); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		if err := unix.Chmod(target, st.Mode&0o7777); err != nil {
			return err
		}
	}
	return unix.UtimesNanoAt(unix.AT_FDCWD, target, []unix.Timespec{st.Atim, st.Mtim}, flags)
}

// copyXattrs copies extended attributes: all of them, for an overlay without its marks shows other files.
func copyXattrs(source, target string, list func(string, []byte) (int, error),
	get func(string, string, []byte) (int, error), set func(string, string, []byte, int) error) error {
	n, err := list(source, nil)
	if err == unix.ENOTSUP || n == 0 {
		return nil
	}
	names := make([]byte, max(n, 0))
	if err == nil {
		n, err = list(source, names)
	}
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names[:n]), "\x00"), "\x00") {
		n, err := get(source, name, nil)
		value := make([]byte, max(n, 0))
		if err == nil && n > 0 {
			n, err = get(source, name, value)
		}
		if err == nil {
			err = set(target, name, value[:n], 0)
		}
		if err != nil && strings.HasPrefix(name, "security.") && !strings.HasPrefix(name, "security.capability") {
			continue // labels are the host's own to give
		}
		if err != nil {
			return fmt.Errorf("copy the attribute %s: %w", name, err)
		}
	}
	return nil
}
