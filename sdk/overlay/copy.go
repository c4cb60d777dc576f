package overlay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/safefile"
)

// Copy copies the directory from with all that is in it to the directory to, which is made: contents, modes, owners,
// times, hard links, and the marks of an overlay, so that the copy of an upper layer is one too. Contents share their
// blocks with the original where the file system can (btrfs, XFS), and keep their holes. owner maps the owner of each
// entry; nil keeps it. Only root can give files to others. No program may write to from meanwhile. After an error the
// caller removes what is there.
func Copy(ctx context.Context, from, to string, owner func(uid, gid uint32) (newUID, newGID uint32)) error {
	c := &copier{ctx: ctx, exact: true, owner: owner, first: map[inode]string{}}
	if err := c.copy(from, to); err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	return nil
}

// UnmappedOptions say how [CopyUnmapped] works.
type UnmappedOptions struct {
	// Mapped reports whether the user namespace of the overlay knows a user and a group of this host.
	Mapped func(uid, gid uint32) bool
	// Whole copies the whole tree as soon as anything in it needs a copy, for a mount that takes one lower layer only.
	Whole bool
}

// Unmapped is what [CopyUnmapped] did.
type Unmapped struct {
	Entries int   // files and directories that the kernel could not have copied up
	Bytes   int64 // of contents that were copied
}

// Note says to a user what was copied and why; "" when nothing was.
func (u Unmapped) Note() string {
	if u.Entries == 0 {
		return ""
	}
	return fmt.Sprintf("%d files and directories of the project belong to another group or user, "+
		"which an overlay of an ordinary user cannot change: the sandbox has copies (%d bytes), "+
		"which belong to its user; an apply keeps the group", u.Entries, u.Bytes)
}

// CopyUnmapped copies what an overlay over the directory from could not change into the directory to, which must not
// exist and is made if anything has to be copied: a lower layer to lay over from or, with Whole, instead of it.
//
// An overlay mounted in a user namespace fails with EOVERFLOW when it has to copy up what belongs to a user or group
// that the namespace does not map. An ordinary user's namespace maps one group, so that is all that belongs to the
// user's other groups, and all below setgid directories. The copies belong to the caller. Left alone is what the caller
// could not change anyway, by its own permissions and those of its directory, and what the caller cannot read.
func CopyUnmapped(ctx context.Context, from, to string, o UnmappedOptions) (Unmapped, error) {
	c := &copier{ctx: ctx, mapped: o.Mapped, count: o.Whole}
	err := c.copy(from, to)
	out := Unmapped{Entries: c.found, Bytes: c.bytes}
	if err == nil && o.Whole && c.found > 0 {
		all := &copier{ctx: ctx}
		err = all.copy(from, to)
		out.Bytes = all.bytes
	}
	if err != nil {
		return Unmapped{}, fmt.Errorf("copy what belongs to another group or user: %w", err)
	}
	return out, nil
}

// CopyTree copies the directory from, as [CopyUnmapped] copies the whole of it, to the directory to. The copies have
// the groups of their originals where the caller may give them. left counts what is neither file, directory nor link,
// and what the caller cannot read.
func CopyTree(ctx context.Context, from, to string) (left int, err error) {
	c := &copier{ctx: ctx, groups: true}
	err = c.copy(from, to)
	return c.left, err
}

// CopyProject copies the directory from, as [CopyUnmapped] copies the whole of it, into an upper layer to that hides
// all of it, for where no overlay can be mounted. Programs write to the copy as it is; [Changes] and [Union] read it
// over from as they would the upper layer of an overlay with the given Options.
func CopyProject(ctx context.Context, from, to string, o Options) error {
	if err := (&copier{ctx: ctx}).copy(from, to); err != nil {
		return err
	}
	marks := "user.overlay."
	if o.Trusted {
		marks = "trusted.overlay."
	}
	if err := unix.Setxattr(to, marks+"opaque", []byte("y"), 0); err != nil {
		return fmt.Errorf("mark the copy of the project: %w", &fs.PathError{Op: "setxattr", Path: to, Err: err})
	}
	return nil
}

type inode struct{ dev, ino uint64 }

// copier copies one directory. The zero value copies a project, as far as the caller can read it, into files of the
// caller's own.
type copier struct {
	ctx context.Context

	exact bool // copy an upper layer, with everything there is, or fail
	owner func(uid, gid uint32) (newUID, newGID uint32)
	first map[inode]string // where the first name of a file with several links was copied to

	mapped func(uid, gid uint32) bool // copy only what it denies and the caller could change; nil for everything
	count  bool                       // of that, and copy nothing
	groups bool                       // give the copies the groups of their originals

	top    *target
	around inode // the directory with the copy, which is not copied
	names  int   // seen
	found  int   // entries that mapped denies
	left   int   // entries that were not copied, or without their contents
	bytes  int64 // of contents
}

// target is a directory of the copy. It is made when something is copied into it.
type target struct {
	in   *target // nil for the top
	name string  // in it; of the top the whole path
	path string  // below the top
	f    *os.File
}

func (t *target) open() (err error) {
	switch {
	case t.f != nil:
		return nil
	case t.in == nil:
		if err = os.Mkdir(t.name, 0o700); err == nil {
			t.f, err = os.Open(t.name)
		}
		return err
	}
	if err := t.in.open(); err != nil {
		return err
	}
	if err := unix.Mkdirat(t.in.fd(), t.name, 0o700); err != nil {
		return err
	}
	fd, err := safefile.OpenDirAt(t.in.fd(), t.name)
	if err == nil {
		t.f = os.NewFile(uintptr(fd), t.name)
	}
	return err
}

func (t *target) fd() int { return int(t.f.Fd()) }

func (t *target) close() {
	if t.f != nil {
		t.f.Close()
	}
}

func (c *copier) copy(from, to string) error {
	f, err := os.OpenFile(from, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	top := dir{f: f}
	defer top.close()
	var around unix.Stat_t
	if err := unix.Stat(filepath.Dir(to), &around); err != nil {
		return &fs.PathError{Op: "stat", Path: filepath.Dir(to), Err: err}
	}
	c.around, c.top = inode{uint64(around.Dev), around.Ino}, &target{name: to}
	defer c.top.close()
	if c.mapped == nil {
		if err := c.top.open(); err != nil {
			return err
		}
	}
	if err := c.fill(top, c.top, 0); err != nil || c.top.f == nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(top.fd(), &st); err != nil {
		return err
	}
	return c.like(top.fd(), "", c.top.fd(), &st)
}

// fill copies what is in from to the directory to.
func (c *copier) fill(from dir, to *target, depth int) error {
	if c.ctx.Err() != nil {
		return context.Cause(c.ctx)
	}
	names, more, err := from.names(DefaultMaxEntries - c.names)
	switch {
	case err != nil && c.exact:
		return err
	case err != nil:
		c.left++ // it cannot be read in the sandbox either
		return nil
	}
	if c.names += len(names); more || depth > DefaultMaxDepth {
		return ErrTooMany
	}
	writable := unix.Faccessat(from.fd(), ".", unix.W_OK, unix.AT_EACCESS) == nil
	for _, name := range names {
		if err := c.entry(from, to, name, writable, depth); err != nil {
			return err
		}
	}
	return nil
}

// entry copies one name.
func (c *copier) entry(from dir, to *target, name string, writable bool, depth int) error {
	path := join(to.path, name)
	st, ok, err := from.stat(name)
	if err != nil && c.exact {
		return named(path, err)
	}
	if err != nil || !ok || !c.exact && c.around == (inode{uint64(st.Dev), st.Ino}) {
		return nil
	}
	takes := c.takes(from, name, &st, writable)
	switch {
	case isDir(st):
		return c.dir(from, &target{in: to, name: name, path: path}, &st, takes, depth)
	case takes:
		err = c.leaf(from, to, name, path, &st)
	}
	if !c.exact && errors.Is(err, fs.ErrNotExist) {
		return nil // gone since it was listed
	}
	return named(path, err)
}

// named puts the path before an error.
func named(path string, err error) error {
	if err != nil && path != "" {
		err = fmt.Errorf("%.200q: %w", path, err)
	}
	return err
}

// takes reports whether an entry of from is copied.
func (c *copier) takes(from dir, name string, st *unix.Stat_t, writable bool) bool {
	if c.mapped == nil {
		return true
	}
	if c.mapped(st.Uid, st.Gid) ||
		!writable && (isLink(*st) || unix.Faccessat(from.fd(), name, unix.W_OK, unix.AT_EACCESS) != nil) {
		return false
	}
	c.found++
	return !c.count
}

// dir copies a directory, or what in it has to be copied.
func (c *copier) dir(from dir, to *target, st *unix.Stat_t, takes bool, depth int) error {
	defer to.close()
	if takes {
		if err := to.open(); err != nil {
			return named(to.path, err)
		}
	}
	sub, err := c.sub(from, to.name)
	switch {
	case err == nil:
		defer sub.close()
		if err := c.fill(sub, to, depth+1); err != nil {
			return err
		}
	case c.exact:
		return named(to.path, err)
	default:
		c.left++
	}
	if to.f == nil {
		return nil
	}
	return named(to.path, c.like(from.fd(), to.name, to.in.fd(), st))
}

// sub opens a directory. The permissions of a project's are not changed for it.
func (c *copier) sub(from dir, name string) (dir, error) {
	if c.exact {
		return from.sub(name)
	}
	fd, err := safefile.OpenDirAt(from.fd(), name)
	if err != nil {
		return dir{}, err
	}
	return dir{f: os.NewFile(uintptr(fd), name)}, nil
}

// leaf copies what is not a directory.
func (c *copier) leaf(from dir, to *target, name, path string, st *unix.Stat_t) error {
	if err := to.open(); err != nil {
		return err
	}
	if c.exact && st.Nlink > 1 {
		id := inode{uint64(st.Dev), st.Ino}
		if earlier, ok := c.first[id]; ok {
			return unix.Linkat(c.top.fd(), earlier, to.fd(), name, 0)
		}
		c.first[id] = path
	}
	switch kind := st.Mode & unix.S_IFMT; {
	case kind == unix.S_IFREG:
		if copied, err := c.file(from, to, name, st); !copied || err != nil {
			return err
		}
	case kind == unix.S_IFLNK:
		link, err := from.readlink(name, st.Size)
		if err == nil {
			err = unix.Symlinkat(link, to.fd(), name)
		}
		if err != nil {
			return err
		}
	case !c.exact:
		c.left++ // sockets and devices are of no use there
		return nil
	default: // a whiteout is the device 0, which everybody may make
		if err := mknodat(to.fd(), name, uint32(kind), int(st.Rdev)); err != nil {
			return err
		}
	}
	return c.like(from.fd(), name, to.fd(), st)
}

// file copies a regular file. Of one in a project that the caller cannot read, the name stays, and nobody can read it
// there either.
func (c *copier) file(from dir, to *target, name string, st *unix.Stat_t) (copied bool, err error) {
	in, err := from.read(name, c.exact)
	if err == unix.EACCES && !c.exact {
		c.left++
		if c.mapped != nil {
			return false, nil
		}
		st.Mode, err = unix.S_IFREG, nil
	}
	if err != nil {
		return false, err
	}
	defer in.Close() // of nil, too
	fd, err := unix.Openat(to.fd(), name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return false, err
	}
	out := os.NewFile(uintptr(fd), name)
	defer out.Close()
	if in == nil {
		return true, nil
	}
	c.bytes += st.Size
	return true, copyContent(out, in)
}

// copyContent shares the blocks of in where the file system can, and else copies what is no hole.
func copyContent(out, in *os.File) error {
	if cloneFile(int(out.Fd()), int(in.Fd())) == nil {
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

// read opens a regular file for reading, with force also against the permissions of one of ours.
func (d dir) read(name string, force bool) (*os.File, error) {
	const flags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err := unix.Openat(d.fd(), name, flags, 0)
	if err == unix.EACCES && force {
		var at int
		if at, err = unix.Openat(d.fd(), name, oPath|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err != nil {
			return nil, err
		}
		defer unix.Close(at)
		var st unix.Stat_t
		if err = errors.Join(unix.Fstat(at, &st), unix.Chmod(fdPath(at), uint32(st.Mode&0o7777|0o400))); err != nil {
			return nil, err
		}
		fd, err = unix.Open(fdPath(at), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		err = errors.Join(err, unix.Chmod(fdPath(at), uint32(st.Mode&0o7777)))
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

// like gives name in to what the same name in from has besides its content; "" stands for the directories themselves.
func (c *copier) like(from int, name string, to int, st *unix.Stat_t) error {
	source, target := strings.TrimSuffix(fdPath(from)+"/"+name, "/"), strings.TrimSuffix(fdPath(to)+"/"+name, "/")
	flags := unix.AT_SYMLINK_NOFOLLOW
	lget, lset, llist := unix.Lgetxattr, unix.Lsetxattr, unix.Llistxattr
	if name == "" { // the descriptors' links under /proc are followed
		flags, lget, lset, llist = 0, unix.Getxattr, unix.Setxattr, unix.Listxattr
	}
	accessed := unix.Timespec{Nsec: utimeOmit}
	if c.groups {
		_ = unix.Fchownat(unix.AT_FDCWD, target, -1, int(st.Gid), flags) // not every user may give every group
	}
	if c.exact {
		accessed = st.Atim
		uid, gid := st.Uid, st.Gid
		if c.owner != nil {
			uid, gid = c.owner(uid, gid)
		}
		if int(uid) != os.Geteuid() || int(gid) != os.Getegid() || os.Geteuid() == 0 {
			if err := unix.Fchownat(unix.AT_FDCWD, target, int(uid), int(gid), flags); err != nil {
				return err
			}
		}
		if err := copyXattrs(source, target, llist, lget, lset); err != nil {
			return err
		}
	}
	if !isLink(*st) {
		if err := unix.Chmod(target, uint32(st.Mode&0o7777)); err != nil {
			return err
		}
	}
	return unix.UtimesNanoAt(unix.AT_FDCWD, target, []unix.Timespec{accessed, st.Mtim}, flags)
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
