package review

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/overlay"
	"github.com/hutch-run/hutch/sdk/safefile"
)

// dir is a directory whose contents are named by paths that never lead through a symbolic link: every directory on the
// way is opened by itself, below the one before. The way to the last path is kept open, so that paths in order cost one
// call each. Not safe for concurrent use.
type dir struct {
	top   int
	names []string // the way that is open
	fds   []int
}

func openDir(path string) (*dir, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return &dir{top: fd}, nil
}

func (d *dir) close() {
	d.forget()
	unix.Close(d.top)
}

// forget closes the way that is open. It is due after a directory was made, removed or moved.
func (d *dir) forget() { d.cut(0) }

func (d *dir) cut(n int) {
	for _, fd := range d.fds[n:] {
		unix.Close(fd)
	}
	d.names, d.fds = d.names[:n], d.fds[:n]
}

// errLinked says that a directory on the way is a symbolic link.
var errLinked = errors.New("a directory on the way is a symbolic link")

// parent opens the directory that holds path; the descriptor is good until the next call. The error is ENOENT or
// ENOTDIR where a directory is missing or something else stands there, and errLinked where that is a symbolic link.
func (d *dir) parent(path string) (fd int, name string, err error) {
	parts := strings.Split(path, "/")
	way := parts[:len(parts)-1]
	n := 0
	for n < len(way) && n < len(d.names) && d.names[n] == way[n] {
		n++
	}
	d.cut(n)
	for _, part := range way[n:] {
		at := d.deepest()
		fd, err := safefile.OpenDirAt(at, part)
		if err != nil {
			if st, serr := safefile.StatAt(at, part); serr == nil && st.Mode.Type() == fs.ModeSymlink {
				err = errLinked
			}
			return -1, "", err
		}
		d.names, d.fds = append(d.names, part), append(d.fds, fd)
	}
	return d.deepest(), parts[len(parts)-1], nil
}

func (d *dir) deepest() int {
	if len(d.fds) == 0 {
		return d.top
	}
	return d.fds[len(d.fds)-1]
}

// look says what stands at path; the zero Node for nothing, also where a directory on the way is missing or not a
// directory.
func (d *dir) look(path string) (Node, error) {
	fd, name, err := d.parent(path)
	if err == nil {
		return lookAt(fd, name)
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, errLinked) {
		err = nil
	}
	return Node{}, err
}

func lookAt(fd int, name string) (Node, error) {
	st, err := safefile.StatAt(fd, name)
	if err != nil {
		return Node{}, err
	}
	return nodeOf(st), nil
}

// open opens the file at path to read it. It must be a regular file; it may have several links, for it is the user's.
func (d *dir) open(path string) (*os.File, Node, error) {
	fd, name, err := d.parent(path)
	if err != nil {
		return nil, Node{}, err
	}
	f, st, err := safefile.OpenFileAt(fd, name)
	if errors.Is(err, unix.EINVAL) {
		err = errors.New("it is not a regular file any more")
	}
	if err != nil {
		return nil, Node{}, err
	}
	return os.NewFile(uintptr(f), filepath.Base(path)), nodeOf(safefile.StatOf(&st)), nil
}

// list names what is in the directory at path, "" for the top.
func (d *dir) list(path string) ([]string, error) {
	fd, name, err := d.top, ".", error(nil)
	if path != "" {
		fd, name, err = d.parent(path)
	}
	if err == nil {
		fd, err = safefile.OpenDirAt(fd, name)
	}
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), filepath.Base(path))
	defer f.Close()
	names, err := f.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

// parentOf is the directory of a path, "" for the top.
func parentOf(path string) string {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i]
	}
	return ""
}

// below reports whether path lies below the directory dir; everything lies below "".
func below(path, dir string) bool {
	return dir == "" || len(path) > len(dir) && path[len(dir)] == '/' && path[:len(dir)] == dir
}

// Type says what stands at a path.
type Type string

// The types.
const (
	Nothing   Type = ""
	File      Type = "file"
	Directory Type = "directory"
	Symlink   Type = "symlink"
	Special   Type = "special" // a FIFO, a socket or a device
)

// Node is what stands at a path, in the project or in the sandbox. The inode, the owner and the times are known of what
// stands in the project only.
type Node struct {
	Type Type
	safefile.Stat
	SHA256 string // of a file's content, in hex, once it was read
}

// nodeOf turns what was seen into a Node.
func nodeOf(s safefile.Stat) Node {
	n := Node{Type: typeOf(s.Mode), Stat: s}
	switch {
	case !s.Exists():
		n.Type = Nothing
	case n.Type == Symlink:
		n.Mode = fs.ModeSymlink // its permissions mean nothing
	}
	return n
}

// version is what both sides of a change have: n without what is only true of the place where it was seen.
func (n Node) version() Node {
	return Node{Type: n.Type, Stat: safefile.Stat{Mode: n.Mode, Size: n.Size, Link: n.Link}, SHA256: n.SHA256}
}

// placed reports whether n was seen in the project.
func (n Node) placed() bool { return n.Ino != 0 }

// typeOf is the type of a mode.
func typeOf(m fs.FileMode) Type {
	switch m.Type() {
	case 0:
		return File
	case fs.ModeDir:
		return Directory
	case fs.ModeSymlink:
		return Symlink
	}
	return Special
}

// entry is the entry of a base for n at a path; the zero Entry for nothing.
func (n Node) entry(path string) overlay.Entry {
	if n.Type == Nothing {
		return overlay.Entry{}
	}
	return overlay.Entry{Path: path, Stat: n.Stat}
}

// touched reports whether what stands at a path of the project is not what the base knows of it.
func touched(e overlay.Entry, known bool, n Node) bool {
	if !known || n.Type == Nothing {
		return known || n.Type != Nothing
	}
	if n.Type == File && typeOf(e.Mode) == File {
		return e.Size != n.Size || e.Mtime != n.Mtime || e.Ctime != n.Ctime || e.Ino != n.Ino
	}
	return !copied(e, known, n)
}

// copied reports whether a sandbox's version of a path is the copy of the base's that an overlay makes before a write
// which then never came: the same size, times and permissions.
func copied(e overlay.Entry, known bool, n Node) bool {
	if !known || typeOf(e.Mode) != n.Type {
		return false
	}
	if n.Type == Symlink {
		return e.Link == n.Link
	}
	return e.Mode == n.Mode && (n.Type != File || e.Size == n.Size && e.Mtime == n.Mtime)
}

// xattr is one extended attribute.
type xattr struct {
	Name  string `json:"name"`
	Value []byte `json:"value"`
}

// maxXattrs bounds the bytes of the attributes of one path.
const maxXattrs = 128 << 10

// kept reports whether an attribute belongs to the place and not to the content, so that it stays when a file is
// replaced: the user's own, and access control lists. A capability is never kept, as the kernel drops it at a write.
func kept(name string) bool {
	return strings.HasPrefix(name, "user.") || name == "system.posix_acl_access" || name == "system.posix_acl_default"
}

// readXattrs reads the attributes that are kept of an open file or directory; none where the file system has none.
func readXattrs(fd int) ([]xattr, error) {
	names := make([]byte, 64<<10) // the kernel's own bound
	n, err := unix.Flistxattr(fd, names)
	if noXattrs(err) || n == 0 && err == nil {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list its extended attributes: %w", err)
	}
	var list []xattr
	value, total := make([]byte, 64<<10), 0
	for name := range bytes.SplitSeq(bytes.TrimSuffix(names[:n], []byte{0}), []byte{0}) {
		if !kept(string(name)) {
			continue
		}
		n, err := unix.Fgetxattr(fd, string(name), value)
		if errors.Is(err, unix.ENODATA) {
			continue // gone since it was listed
		}
		if total += n; err == nil && total > maxXattrs {
			err = fmt.Errorf("they have more than %d bytes", maxXattrs)
		}
		if err != nil {
			return nil, fmt.Errorf("read its extended attribute %q: %w", name, err)
		}
		list = append(list, xattr{string(name), slices.Clone(value[:n])})
	}
	return list, nil
}

// writeXattrs gives an open file or directory attributes.
func writeXattrs(fd int, list []xattr) error {
	for _, x := range list {
		if err := unix.Fsetxattr(fd, x.Name, x.Value, 0); err != nil {
			return fmt.Errorf("keep its extended attribute %q: %w", x.Name, err)
		}
	}
	return nil
}

func noXattrs(err error) bool {
	return errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS)
}
