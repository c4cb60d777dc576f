package review

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/overlay"
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
		fd, err := unix.Openat(at, part, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			var st unix.Stat_t
			if unix.Fstatat(at, part, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && uint32(st.Mode)&unix.S_IFMT == unix.S_IFLNK {
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

// look says what stands at path; the zero Node for nothing, also where a directory on the way is missing or is none.
func (d *dir) look(path string) (Node, ident, error) {
	fd, name, err := d.parent(path)
	if err == nil {
		return lookAt(fd, name)
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, errLinked) {
		return Node{}, ident{}, nil
	}
	return Node{}, ident{}, err
}

func lookAt(fd int, name string) (Node, ident, error) {
	var st unix.Stat_t
	err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return Node{}, ident{}, nil
	}
	if err != nil {
		return Node{}, ident{}, err
	}
	n, id := nodeOf(&st)
	if n.Type == Symlink {
		if n.Link, err = readlink(fd, name); err != nil {
			return Node{}, ident{}, err
		}
	}
	return n, id, nil
}

// readlink reads where a symbolic link points.
func readlink(fd int, name string) (string, error) {
	buf := make([]byte, maxBasePath+1)
	n, err := unix.Readlinkat(fd, name, buf)
	if err == nil && n > maxBasePath {
		err = unix.ENAMETOOLONG
	}
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// open opens the file at path to read it. It must be a regular file; it may have several links, for it is the user's.
func (d *dir) open(path string) (*os.File, ident, error) {
	fd, name, err := d.parent(path)
	if err != nil {
		return nil, ident{}, err
	}
	f, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, ident{}, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(f, &st); err != nil {
		unix.Close(f)
		return nil, ident{}, err
	}
	n, id := nodeOf(&st)
	if n.Type != File {
		unix.Close(f)
		return nil, ident{}, fmt.Errorf("it is not a regular file any more")
	}
	return os.NewFile(uintptr(f), filepath.Base(path)), id, nil
}

// list names what is in the directory at path, "" for the top.
func (d *dir) list(path string) ([]string, error) {
	fd, name, err := d.top, ".", error(nil)
	if path != "" {
		fd, name, err = d.parent(path)
	}
	if err == nil {
		fd, err = unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), filepath.Base(path))
	defer f.Close()
	var names []string
	for {
		batch, err := f.Readdirnames(4096)
		names = append(names, batch...)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(names)
	return names, nil
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

// Node is what stands at a path, in the project or in the sandbox.
type Node struct {
	Type   Type   `json:"type,omitempty"`
	Mode   uint32 `json:"mode,omitempty"`   // permission, set-id and sticky bits, as chmod counts them; 0 for a symbolic link
	Size   int64  `json:"size,omitempty"`   // of a file, in bytes
	Link   string `json:"link,omitempty"`   // where a symbolic link points
	SHA256 string `json:"sha256,omitempty"` // of a file's content, in hex, once it was read
}

// The bits of Node.Mode.
const (
	execBits  = 0o111
	setidBits = unix.S_ISUID | unix.S_ISGID
	otherMay  = 0o002
	allBits   = 0o7777
)

// ident is what shows that a file was touched, without reading it.
type ident struct {
	Dev   uint64 `json:"dev"`
	Ino   uint64 `json:"ino"`
	Size  int64  `json:"size"`
	Mtime int64  `json:"mtime"` // nanoseconds since 1970
	Ctime int64  `json:"ctime"`
	UID   uint32 `json:"uid"`
	GID   uint32 `json:"gid"`
}

// same reports whether both are the same file, not touched in between.
func (i ident) same(o ident) bool {
	return i.Dev == o.Dev && i.Ino == o.Ino && i.Size == o.Size && i.Mtime == o.Mtime && i.Ctime == o.Ctime
}

// moved is same for a file that was renamed in between, which sets its change time.
func (i ident) moved(o ident) bool {
	return i.Dev == o.Dev && i.Ino == o.Ino && i.Size == o.Size && i.Mtime == o.Mtime
}

// nodeOf turns what stat said into a Node, without the target of a link.
func nodeOf(st *unix.Stat_t) (Node, ident) {
	n := Node{Mode: uint32(st.Mode) & allBits}
	switch uint32(st.Mode) & unix.S_IFMT {
	case unix.S_IFREG:
		n.Type, n.Size = File, st.Size
	case unix.S_IFDIR:
		n.Type = Directory
	case unix.S_IFLNK:
		n.Type, n.Mode = Symlink, 0 // they mean nothing
	default:
		n.Type = Special
	}
	return n, ident{Dev: uint64(st.Dev), Ino: st.Ino, Size: st.Size, Mtime: st.Mtim.Nano(), Ctime: st.Ctim.Nano(), UID: st.Uid, GID: st.Gid}
}

// nodeOfSeen is nodeOf for what was looked at elsewhere; the zero Node for nothing.
func nodeOfSeen(s overlay.Stat) (Node, ident) {
	if s == (overlay.Stat{}) {
		return Node{}, ident{}
	}
	n := Node{Type: typeOf(s.Mode), Mode: bitsOf(s.Mode)}
	switch n.Type {
	case File:
		n.Size = s.Size
	case Symlink:
		n.Mode = 0
	}
	return n, ident{Dev: s.Dev, Ino: s.Ino, Size: s.Size, Mtime: s.Mtime, Ctime: s.Ctime, UID: s.UID, GID: s.GID}
}

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

// bitsOf turns Go's permission bits into those of chmod.
func bitsOf(m fs.FileMode) uint32 {
	bits := uint32(m.Perm())
	if m&fs.ModeSetuid != 0 {
		bits |= unix.S_ISUID
	}
	if m&fs.ModeSetgid != 0 {
		bits |= unix.S_ISGID
	}
	if m&fs.ModeSticky != 0 {
		bits |= unix.S_ISVTX
	}
	return bits
}

// modeOf is the opposite of bitsOf.
func modeOf(bits uint32) fs.FileMode {
	m := fs.FileMode(bits & 0o777)
	if bits&unix.S_ISUID != 0 {
		m |= fs.ModeSetuid
	}
	if bits&unix.S_ISGID != 0 {
		m |= fs.ModeSetgid
	}
	if bits&unix.S_ISVTX != 0 {
		m |= fs.ModeSticky
	}
	return m
}

// touched reports whether what stands at a path now is not what the base knows of it.
func touched(e overlay.Entry, known bool, n Node, id ident) bool {
	if !known || n.Type == Nothing {
		return known || n.Type != Nothing
	}
	if typeOf(e.Mode) != n.Type {
		return true
	}
	switch n.Type {
	case File:
		return e.Size != n.Size || e.Mtime != id.Mtime || e.Ctime != id.Ctime || e.Ino != id.Ino
	case Symlink:
		return e.Link != n.Link
	}
	return bitsOf(e.Mode) != n.Mode
}

// copied reports whether a sandbox's version of a path is the copy of the base's that an overlay makes before a write
// which then never came: the same size, times and permissions.
func copied(e overlay.Entry, known bool, n Node, id ident) bool {
	if !known || typeOf(e.Mode) != n.Type {
		return false
	}
	switch n.Type {
	case File:
		return e.Size == n.Size && e.Mtime == id.Mtime && bitsOf(e.Mode) == n.Mode
	case Symlink:
		return e.Link == n.Link
	}
	return bitsOf(e.Mode) == n.Mode
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
