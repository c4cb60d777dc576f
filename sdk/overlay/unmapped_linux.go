package overlay

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/safefile"
)

// UnmappedOptions say how [CopyUnmapped] works.
type UnmappedOptions struct {
	// Mapped reports whether the user namespace of the overlay knows a user and a group of this host.
	Mapped func(uid, gid uint32) bool
	// Whole copies the whole tree as soon as anything in it needs a copy, for a mount that takes one lower layer only.
	Whole bool

	all bool // whatever Mapped would say
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
	return fmt.Sprintf("%d files and directories of the project belong to another group or user, which an overlay of an ordinary user cannot change: "+
		"the sandbox has copies (%d bytes), which belong to its user; an apply keeps the group", u.Entries, u.Bytes)
}

// CopyUnmapped copies what an overlay over the directory from could not change into the directory to, which must not
// exist and is made if anything has to be copied: a lower layer to lay over from or, with Whole, instead of it.
//
// An overlay mounted in a user namespace fails with EOVERFLOW when it has to copy up what belongs to a user or group
// that the namespace does not map. An ordinary user's namespace maps one group, so that is all that belongs to the
// user's other groups, and all below setgid directories. The copies belong to the caller. Left alone is what the caller
// could not change anyway, by its own permissions and those of its directory, and what the caller cannot read.
func CopyUnmapped(ctx context.Context, from, to string, o UnmappedOptions) (u Unmapped, err error) {
	source, err := os.OpenRoot(from)
	if err != nil {
		return u, err
	}
	defer source.Close()
	top, err := openTop(source)
	if err != nil {
		return u, err
	}
	defer top.close()
	l := &unmappedLister{ctx: ctx, o: o, left: DefaultMaxEntries}
	if err := l.walk(top, "", 0); err != nil {
		return u, fmt.Errorf("look for files of other groups: %w", err)
	}
	if u.Entries = l.found; u.Entries == 0 && !o.all {
		return u, nil
	}
	if err := os.Mkdir(to, 0o700); err != nil {
		return u, err
	}
	target, err := os.OpenRoot(to)
	if err != nil {
		return u, err
	}
	defer target.Close()
	c := &unmappedCopier{from: source, to: target, whole: o.Whole, made: map[string]bool{".": true}, dirs: []string{"."}}
	for _, p := range l.list {
		if err := ctx.Err(); err != nil {
			return u, context.Cause(ctx)
		}
		if err := c.entry(p); err != nil && !errors.Is(err, fs.ErrNotExist) { // it may be gone since it was listed
			return u, fmt.Errorf("copy %q, which belongs to another group or user: %w", p, err)
		}
	}
	u.Bytes = c.bytes
	return u, c.finish()
}

// CopyProject copies the directory from, as [CopyUnmapped] does, into an upper layer to that hides all of it, for where
// no overlay can be mounted. Programs write to the copy as it is; [Changes] and [Union] read it over from as they would
// the upper layer of an overlay with the given Options.
func CopyProject(ctx context.Context, from, to string, o Options) error {
	if _, err := CopyUnmapped(ctx, from, to, UnmappedOptions{Whole: true, all: true}); err != nil {
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

// unmappedLister finds what needs a copy.
type unmappedLister struct {
	ctx   context.Context
	o     UnmappedOptions
	left  int
	found int
	list  []string // what needs a copy, or with Whole everything; parents first
}

func (l *unmappedLister) walk(d dir, at string, depth int) error {
	if err := l.ctx.Err(); err != nil {
		return context.Cause(l.ctx)
	}
	names, more, err := d.names(l.left)
	if err != nil {
		return nil // it cannot be read in the sandbox either
	}
	if l.left -= len(names); more || depth > DefaultMaxDepth {
		return ErrTooMany
	}
	writable := unix.Faccessat(d.fd(), ".", unix.W_OK, unix.AT_EACCESS) == nil
	for _, name := range names {
		st, ok, err := d.stat(name)
		if err != nil || !ok {
			continue
		}
		p := join(at, name)
		own := l.o.all || l.o.Mapped(st.Uid, st.Gid)
		if !own && (writable || !isLink(st) && unix.Faccessat(d.fd(), name, unix.W_OK, unix.AT_EACCESS) == nil) {
			l.found++
			l.list = append(l.list, p)
		} else if l.o.Whole {
			l.list = append(l.list, p)
		}
		if !isDir(st) {
			continue
		}
		fd, err := safefile.OpenDirAt(d.fd(), name) // whose permissions are not changed to open it
		if err != nil {
			continue
		}
		sub := dir{f: os.NewFile(uintptr(fd), name)}
		err = l.walk(sub, p, depth+1)
		sub.close()
		if err != nil {
			return err
		}
	}
	return nil
}

// unmappedCopier copies entries from one directory to another.
type unmappedCopier struct {
	from, to *os.Root
	whole    bool
	made     map[string]bool
	dirs     []string // directories that were made, parents first
	bytes    int64
}

func (c *unmappedCopier) entry(p string) error {
	st, err := c.from.Lstat(p)
	if err != nil {
		return err
	}
	if err := c.dir(path.Dir(p)); err != nil {
		return err
	}
	switch st.Mode().Type() {
	case fs.ModeDir:
		return c.dir(p)
	case fs.ModeSymlink:
		link, err := c.from.Readlink(p)
		if err != nil {
			return err
		}
		return c.to.Symlink(link, p)
	case 0:
		return c.file(p, st)
	}
	return nil // sockets and devices are of no use there
}

// dir makes a directory and all above it.
func (c *unmappedCopier) dir(p string) error {
	if c.made[p] {
		return nil
	}
	if err := c.dir(path.Dir(p)); err != nil {
		return err
	}
	if err := c.to.Mkdir(p, 0o700); err != nil {
		return err
	}
	c.made[p], c.dirs = true, append(c.dirs, p)
	return nil
}

func (c *unmappedCopier) file(p string, st fs.FileInfo) error {
	in, err := c.from.OpenFile(p, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrPermission) {
		if !c.whole {
			return nil
		}
		in, err = nil, nil // its name stays, and nobody can read it there either
	}
	if err != nil {
		return err
	}
	out, err := c.to.OpenFile(p, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return errors.Join(err, in.Close())
	}
	defer out.Close()
	mode := fs.FileMode(0)
	if in != nil {
		defer in.Close()
		mode = st.Mode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid)
		n, err := out.ReadFrom(in) // by copy_file_range, which shares the blocks where the file system can
		c.bytes += n
		if err != nil {
			return err
		}
	}
	if err := out.Chmod(mode); err != nil {
		return err
	}
	return c.to.Chtimes(p, time.Time{}, st.ModTime())
}

// finish gives the directories the modes and times of those they stand for, which nothing is written to any more.
func (c *unmappedCopier) finish() error {
	for _, p := range slices.Backward(c.dirs) {
		st, err := c.from.Lstat(p)
		if err != nil {
			continue // gone meanwhile
		}
		if err := c.to.Chtimes(p, time.Time{}, st.ModTime()); err != nil {
			return err
		}
		if err := c.to.Chmod(p, st.Mode()&(fs.ModePerm|fs.ModeSetgid|fs.ModeSticky)); err != nil {
			return err
		}
	}
	return nil
}
