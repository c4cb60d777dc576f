package overlay

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"syscall"
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
	t := &treeCopier{ctx: ctx, mapped: o.Mapped, whole: o.Whole}
	if err := t.copy(from, to); err != nil {
		return Unmapped{}, fmt.Errorf("copy what belongs to another group or user: %w", err)
	}
	return Unmapped{Entries: t.found, Bytes: t.bytes}, nil
}

// CopyTree copies the directory from, as [CopyUnmapped] copies the whole of it, to the directory to. The copies have
// the groups of their originals where the caller may give them. left counts what is neither file, directory nor link,
// and what the caller cannot read.
func CopyTree(ctx context.Context, from, to string) (left int, err error) {
	t := &treeCopier{ctx: ctx, whole: true, groups: true}
	err = t.copy(from, to)
	return t.left, err
}

// CopyProject copies the directory from, as [CopyUnmapped] copies the whole of it, into an upper layer to that hides
// all of it, for where no overlay can be mounted. Programs write to the copy as it is; [Changes] and [Union] read it
// over from as they would the upper layer of an overlay with the given Options.
func CopyProject(ctx context.Context, from, to string, o Options) error {
	if err := (&treeCopier{ctx: ctx, whole: true}).copy(from, to); err != nil {
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

// treeCopier finds what is to be copied, and copies it from one directory to another.
type treeCopier struct {
	ctx    context.Context
	mapped func(uid, gid uint32) bool // only what it denies needs a copy; nil when everything does
	whole  bool
	groups bool

	around inode    // the directory with the copy, which is not copied
	names  int      // seen
	found  int      // entries that need a copy
	list   []string // what to copy; parents first
	left   int      // entries that were not copied, or without their contents

	from, to *os.Root
	made     map[string]bool
	dirs     []string // directories that were made, parents first
	bytes    int64
}

func (t *treeCopier) copy(from, to string) (err error) {
	if t.from, err = os.OpenRoot(from); err != nil {
		return err
	}
	defer t.from.Close()
	top, err := openTop(t.from)
	if err != nil {
		return err
	}
	defer top.close()
	var around unix.Stat_t
	if err := unix.Stat(filepath.Dir(to), &around); err != nil {
		return &fs.PathError{Op: "stat", Path: filepath.Dir(to), Err: err}
	}
	t.around = inode{around.Dev, around.Ino}
	if err := t.walk(top, "", 0); err != nil {
		return err
	}
	if t.found == 0 && t.mapped != nil {
		return nil
	}
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	if t.to, err = os.OpenRoot(to); err != nil {
		return err
	}
	defer t.to.Close()
	t.made, t.dirs = map[string]bool{".": true}, []string{"."}
	for _, p := range t.list {
		if t.ctx.Err() != nil {
			return context.Cause(t.ctx)
		}
		if err := t.entry(p); err != nil && !errors.Is(err, fs.ErrNotExist) { // it may be gone since it was listed
			return fmt.Errorf("%q: %w", p, err)
		}
	}
	return t.finish()
}

func (t *treeCopier) walk(d dir, at string, depth int) error {
	if t.ctx.Err() != nil {
		return context.Cause(t.ctx)
	}
	names, more, err := d.names(DefaultMaxEntries - t.names)
	if err != nil {
		t.left++
		return nil // it cannot be read in the sandbox either
	}
	if t.names += len(names); more || depth > DefaultMaxDepth {
		return ErrTooMany
	}
	writable := unix.Faccessat(d.fd(), ".", unix.W_OK, unix.AT_EACCESS) == nil
	for _, name := range names {
		st, ok, err := d.stat(name)
		if err != nil || !ok || t.around == (inode{st.Dev, st.Ino}) {
			continue
		}
		p := join(at, name)
		own := t.mapped == nil || t.mapped(st.Uid, st.Gid)
		if !own && (writable || !isLink(st) && unix.Faccessat(d.fd(), name, unix.W_OK, unix.AT_EACCESS) == nil) {
			t.found++
			t.list = append(t.list, p)
		} else if t.whole {
			t.list = append(t.list, p)
		}
		if !isDir(st) {
			continue
		}
		fd, err := safefile.OpenDirAt(d.fd(), name) // whose permissions are not changed to open it
		if err != nil {
			t.left++
			continue
		}
		sub := dir{f: os.NewFile(uintptr(fd), name)}
		err = t.walk(sub, p, depth+1)
		sub.close()
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *treeCopier) entry(p string) error {
	st, err := t.from.Lstat(p)
	if err != nil {
		return err
	}
	if err := t.dir(path.Dir(p)); err != nil {
		return err
	}
	switch st.Mode().Type() {
	case fs.ModeDir:
		return t.dir(p)
	case fs.ModeSymlink:
		link, err := t.from.Readlink(p)
		if err != nil {
			return err
		}
		if err := t.to.Symlink(link, p); err != nil {
			return err
		}
		t.group(p, st)
		return nil
	case 0:
		return t.file(p, st)
	}
	t.left++ // sockets and devices are of no use there
	return nil
}

// dir makes a directory and all above it.
func (t *treeCopier) dir(p string) error {
	if t.made[p] {
		return nil
	}
	if err := t.dir(path.Dir(p)); err != nil {
		return err
	}
	if err := t.to.Mkdir(p, 0o700); err != nil {
		return err
	}
	t.made[p], t.dirs = true, append(t.dirs, p)
	return nil
}

func (t *treeCopier) file(p string, st fs.FileInfo) error {
	in, err := t.from.OpenFile(p, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrPermission) {
		t.left++
		if !t.whole {
			return nil
		}
		in, err = nil, nil // its name stays, and nobody can read it there either
	}
	if err != nil {
		return err
	}
	out, err := t.to.OpenFile(p, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return errors.Join(err, in.Close())
	}
	defer out.Close()
	mode := fs.FileMode(0)
	if in != nil {
		defer in.Close()
		mode = st.Mode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid)
		if err := copyContent(out, in); err != nil {
			return err
		}
		t.bytes += st.Size()
	}
	t.group(p, st) // which takes set-id bits
	if err := out.Chmod(mode); err != nil {
		return err
	}
	return t.to.Chtimes(p, time.Time{}, st.ModTime())
}

// finish gives the directories the modes and times of those they stand for, which nothing is written to any more.
func (t *treeCopier) finish() error {
	for _, p := range slices.Backward(t.dirs) {
		st, err := t.from.Lstat(p)
		if err != nil {
			continue // gone meanwhile
		}
		t.group(p, st)
		if err := t.to.Chtimes(p, time.Time{}, st.ModTime()); err != nil {
			return err
		}
		if err := t.to.Chmod(p, st.Mode()&(fs.ModePerm|fs.ModeSetgid|fs.ModeSticky)); err != nil {
			return err
		}
	}
	return nil
}

// group gives a copy the group of its original. Not every user may give every group.
func (t *treeCopier) group(p string, st fs.FileInfo) {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok && t.groups {
		_ = t.to.Lchown(p, -1, int(sys.Gid))
	}
}
