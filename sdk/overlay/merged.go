package overlay

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/safefile"
)

// Union is the merged view of directories, as an overlay file system of them shows it: names of upper hide those of
// lower, a whiteout in upper hides a name, an opaque directory all that is in the one below it. It needs no mount, so
// it serves readers beside a mounted overlay, and beside a copy that [CopyProject] made.
//
// With one directory alone there is nothing to hide: marks are then ordinary files and attributes.
//
// The directories may be hostile and may change at any time. Names are opened one at a time below descriptors, never
// through a symbolic link; links are resolved inside the union only. A Union is safe for concurrent use.
type Union struct {
	top    pair
	marks  string // prefix of the overlay's extended attributes
	at     string
	hiding bool // there is more than one layer
}

// pair is one directory of a union: what the layers that have a part in it hold.
type pair struct {
	up []part // of upper and the frozen layers, from the top
	lo int    // descriptor in lower, or -1
}

// part is a directory of one layer.
type part struct {
	fd     int
	layer  int  // index in the top's parts
	xwhite bool // it may hold whiteouts that are files with an attribute
}

// none is a pair without a part.
var none = pair{lo: -1}

func (p pair) close() {
	for _, up := range p.up {
		unix.Close(up.fd)
	}
	if p.lo >= 0 {
		unix.Close(p.lo)
	}
}

// OpenUnion opens the union of two directories, either of which may be "", and of the frozen layers between them.
func OpenUnion(lower, upper string, o UnionOptions) (*Union, error) {
	if lower == "" && upper == "" {
		return nil, errors.New("a union needs a directory")
	}
	u := &Union{top: none, marks: "user.overlay.", at: path.Clean("/" + o.At)}
	u.hiding = upper != "" && (lower != "" || len(o.Frozen) > 0)
	if o.At == "" {
		u.at = ""
	}
	if o.Trusted {
		u.marks = "trusted.overlay."
	}
	opaque := false
	for _, dir := range append([]string{upper}, o.Frozen...) {
		if dir == "" || opaque {
			continue
		}
		fd, err := openTopDir(dir)
		if err != nil {
			u.top.close()
			return nil, err
		}
		opaque = u.put(&u.top, len(u.top.up), fd)
	}
	if lower != "" && !opaque {
		var err error
		if u.top.lo, err = openTopDir(lower); err != nil {
			u.top.close()
			return nil, err
		}
	}
	return u, nil
}

func openTopDir(dir string) (int, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	return fd, nil
}

// put adds the next part from the top to p, and says whether it hides those below.
func (u *Union) put(p *pair, layer, fd int) (opaque bool) {
	mark := ""
	if u.hiding {
		mark = u.attr(fd, "opaque")
	}
	p.up = append(p.up, part{fd, layer, mark == "x"})
	return mark == "y"
}

// Close closes the union. Nothing of it may be in use.
func (u *Union) Close() error {
	u.top.close()
	u.top = none
	return nil
}

// attr reads a short attribute of the overlay.
func (u *Union) attr(fd int, name string) string {
	var buf [8]byte
	n, err := unix.Fgetxattr(fd, u.marks+name, buf[:])
	if err != nil {
		return ""
	}
	return string(buf[:n])
}

// look finds the name in p, and the descriptor of the directory that it is in; the error is ENOENT when it is not there,
// or hidden.
func (u *Union) look(p pair, name string) (fd int, layer Layer, st unix.Stat_t, err error) {
	for _, up := range p.up {
		err := unix.Fstatat(up.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
		if err == nil && u.isWhiteout(up, st, name) {
			return -1, "", st, unix.ENOENT
		}
		if err != unix.ENOENT {
			return up.fd, Upper, st, err
		}
	}
	if p.lo < 0 {
		return -1, "", st, unix.ENOENT
	}
	err = unix.Fstatat(p.lo, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil && u.hiding && isDevice0(st) {
		err = unix.ENOENT // an overlay takes it for its own wherever it finds it
	}
	return p.lo, Lower, st, err
}

// isWhiteout recognises the marks for "deleted" in a part.
func (u *Union) isWhiteout(up part, st unix.Stat_t, name string) bool {
	if !u.hiding {
		return false
	}
	return isDevice0(st) || up.xwhite && isRegular(st) && st.Size == 0 && hasXattr(up.fd, name, u.marks+"whiteout")
}

func isDevice0(st unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0 }

// hasXattr reports whether name in a directory has an extended attribute, whatever its value.
func hasXattr(fd int, name, attr string) bool {
	_, err := unix.Lgetxattr(fdPath(fd)+"/"+name, attr, nil)
	return err == nil
}

const maxLinks = 40 // as the kernel's

// Lstat looks at a path. Symbolic links on the way are followed, the last one is not.
func (u *Union) Lstat(name string) (Node, error) {
	p, err := u.find(name, false)
	if err != nil {
		return Node{}, &fs.PathError{Op: "lstat", Path: name, Err: err}
	}
	defer p.close()
	_, e, err := u.stat(p)
	if err != nil {
		return Node{}, &fs.PathError{Op: "lstat", Path: name, Err: err}
	}
	return e, nil
}

// stat describes a place, and returns the descriptor of the directory that it is in.
func (u *Union) stat(p place) (int, Node, error) {
	if p.name == "" {
		var st unix.Stat_t
		e := Node{Path: ".", Merged: len(p.dir().up) > 0 && p.dir().lo >= 0}
		fd, layer := p.dir().lo, Lower
		if len(p.dir().up) > 0 {
			fd, layer = p.dir().up[0].fd, Upper
		}
		if err := unix.Fstat(fd, &st); err != nil {
			return fd, e, err
		}
		e.fill(layer, st)
		return fd, e, nil
	}
	fd, layer, st, err := u.look(p.dir(), p.name)
	if err != nil {
		return fd, Node{}, err
	}
	e := Node{Path: p.path}
	e.fill(layer, st)
	switch {
	case isLink(st):
		e.Target, err = safefile.ReadlinkAt(fd, p.name)
	case isDir(st) && u.hiding:
		var sub pair
		if sub, err = u.enter(p.dir(), p.name); err == nil {
			e.Merged = len(sub.up) > 0 && sub.lo >= 0
			sub.close()
		} else if err == unix.EACCES || errors.Is(err, ErrMountPoint) {
			err = nil // it is there, and closed
		}
	}
	return fd, e, err
}

func (e *Node) fill(layer Layer, st unix.Stat_t) {
	e.Layer, e.Mode, e.Size = layer, safefile.ModeOf(uint32(st.Mode)), sizeOf(st)
	e.ModTime = time.Unix(st.Mtim.Unix())
	if !isDir(st) {
		e.Links = int(st.Nlink)
	}
}

// Open opens a regular file with one link and of at most max bytes, negative for any size, for reading. Symbolic links
// are followed inside the union. What may not be opened is a *[safefile.Error].
func (u *Union) Open(name string, max int64) (*os.File, Node, error) {
	p, err := u.find(name, true)
	if err != nil {
		return nil, Node{}, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer p.close()
	in, e, err := u.stat(p)
	if err != nil {
		return nil, Node{}, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	if bad := safefile.Refuse(name, e.Mode, e.Links, e.Size, max); bad != nil {
		return nil, Node{}, bad
	}
	fd, st, err := openFile(in, p.name, name, max)
	if err != nil {
		return nil, Node{}, err
	}
	e.fill(e.Layer, st)
	return os.NewFile(uintptr(fd), name), e, nil
}

// openFile opens name of a directory, which errors call path. It never waits for a FIFO, follows no link, and refuses
// what is not a regular file with one link and at most max bytes.
func openFile(fd int, name, path string, max int64) (int, unix.Stat_t, error) {
	var st unix.Stat_t
	f, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err == unix.ELOOP {
		return -1, st, &safefile.Error{Path: path, Reason: safefile.ReasonSymlink, Detail: "it is a symbolic link", Err: err}
	}
	if err == nil {
		if err = unix.Fstat(f, &st); err == nil {
			if bad := safefile.Refuse(path, safefile.ModeOf(uint32(st.Mode)), int(st.Nlink), st.Size, max); bad != nil {
				unix.Close(f)
				return -1, st, bad
			}
			return f, st, nil
		}
		unix.Close(f)
	}
	return -1, st, &fs.PathError{Op: "open", Path: path, Err: err}
}

// place is where a path led: a name in a directory.
type place struct {
	dirs []pair // those on the way, the top first; the last one has the name
	name string // "" for the top itself
	path string // without symbolic links on the way; "." for the top
}

func (p *place) dir() pair { return p.dirs[len(p.dirs)-1] }

func (p *place) pop() {
	p.dir().close()
	p.dirs = p.dirs[:len(p.dirs)-1]
}

// close closes what find opened, which the top is not.
func (p *place) close() {
	for len(p.dirs) > 1 {
		p.pop()
	}
}

// find resolves a path. Symbolic links on the way are followed inside the union, the last one only with follow. The
// last name need not exist; all others must, and be directories.
func (u *Union) find(name string, follow bool) (p place, err error) {
	p.dirs = []pair{u.top}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	left, err := split(name)
	if err != nil {
		return p, err
	}
	var done []string
	for links := 0; len(left) > 0; {
		part := left[0]
		left = left[1:]
		switch {
		case part == "" || part == ".":
			continue
		case part == ".." && len(done) == 0:
			return p, ErrOutside
		case part == "..":
			p.pop()
			done = done[:len(done)-1]
			continue
		case len(part) > unix.NAME_MAX:
			return p, unix.ENAMETOOLONG
		}
		in, _, st, err := u.look(p.dir(), part)
		if len(left) == 0 && (err == unix.ENOENT || err == nil && (!isLink(st) || !follow)) {
			p.name, p.path = part, join(strings.Join(done, "/"), part)
			return p, nil
		}
		if err != nil {
			return p, err
		}
		if !isLink(st) {
			sub, err := u.enter(p.dir(), part)
			if err != nil {
				return p, err
			}
			p.dirs, done = append(p.dirs, sub), append(done, part)
			continue
		}
		if links++; links > maxLinks {
			return p, unix.ELOOP
		}
		target, err := safefile.ReadlinkAt(in, part)
		if err != nil {
			return p, err
		}
		more, fromTop, err := u.follow(target)
		if err != nil {
			return p, err
		}
		if fromTop {
			p.close()
			done = nil
		}
		left = slices.Concat(more, left)
	}
	if len(done) == 0 {
		p.path = "."
		return p, nil
	}
	// It ended in a directory that was entered, as a/b/.. does.
	p.pop()
	p.name, p.path = done[len(done)-1], strings.Join(done, "/")
	return p, nil
}

// fd is the directory that a name of p is in.
func (p pair) fd(n Name) int {
	if n.Layer == Upper {
		return p.up[n.part].fd
	}
	return p.lo
}

// split cuts a path into its names.
func split(name string) ([]string, error) {
	switch {
	case name == "":
		return nil, unix.ENOENT
	case len(name) >= 2*unix.PathMax:
		return nil, unix.ENAMETOOLONG
	case strings.IndexByte(name, 0) >= 0:
		return nil, unix.EINVAL
	case path.IsAbs(name):
		return nil, ErrOutside
	}
	return strings.Split(name, "/"), nil
}

// follow says where a link leads: the names to go on with, and whether they begin at the top.
func (u *Union) follow(target string) (names []string, fromTop bool, err error) {
	if !path.IsAbs(target) {
		return strings.Split(target, "/"), false, nil
	}
	clean := path.Clean(target)
	if u.at == "" || clean != u.at && !strings.HasPrefix(clean, strings.TrimSuffix(u.at, "/")+"/") {
		return nil, false, fmt.Errorf("the link to %q: %w", target, ErrOutside)
	}
	return strings.Split(strings.TrimPrefix(clean[len(u.at):], "/"), "/"), true, nil
}

// Resolve follows the symbolic links of a path and returns the path of what it leads to; what is there need not exist,
// but the directory that it would be in must. A link that leads out of the union is [ErrOutside].
func (u *Union) Resolve(name string) (string, error) {
	p, err := u.find(name, true)
	if err != nil {
		return "", &fs.PathError{Op: "resolve", Path: name, Err: err}
	}
	p.close()
	return p.path, nil
}

// enter opens the directory name of p.
func (u *Union) enter(p pair, name string) (pair, error) {
	out := none
	for _, up := range p.up {
		fd, err := openDir(up.fd, name)
		switch {
		case err == nil:
			if u.put(&out, up.layer, fd) {
				return out, nil
			}
		case err == unix.ENOENT:
		case len(out.up) > 0 && absent(err): // a file or a whiteout, which hides what is below it
			return out, nil
		default:
			out.close()
			return none, notDir(err)
		}
	}
	if p.lo >= 0 {
		fd, err := openDir(p.lo, name)
		switch {
		case err == nil:
			out.lo = fd
		case len(out.up) > 0 && absent(err):
		default:
			out.close()
			return none, notDir(err)
		}
	}
	if len(out.up) == 0 && out.lo < 0 {
		return out, unix.ENOENT
	}
	return out, nil
}

// notDir calls a symbolic link what it is here: no directory.
func notDir(err error) error {
	if err == unix.ELOOP {
		return unix.ENOTDIR
	}
	return err
}

// openDir opens the directory name, which may be several names with slashes, below fd. Nothing on the way may be a
// symbolic link or another file system's.
func openDir(fd int, name string) (int, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	if len(name) < unix.PathMax {
		got, err := openBeneath(fd, name, flags)
		switch err {
		case unix.ENOSYS, unix.EPERM, unix.EAGAIN: // an old kernel, a filter, or a rename meanwhile
		case unix.EXDEV:
			return -1, ErrMountPoint
		default:
			return got, err
		}
	}
	at, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	for part := range strings.SplitSeq(name, "/") {
		if err != nil {
			return -1, err
		}
		var was, is unix.Stat_t
		parent := at
		if at, err = unix.Openat(parent, part, flags, 0); err == nil {
			if err = errors.Join(unix.Fstat(parent, &was), unix.Fstat(at, &is)); err == nil && was.Dev != is.Dev {
				err = ErrMountPoint
			}
			if err != nil {
				unix.Close(at)
			}
		}
		unix.Close(parent)
	}
	return at, err
}

// absent reports that there is no directory of the name, but perhaps something else.
func absent(err error) bool { return err == unix.ENOENT || err == unix.ENOTDIR || err == unix.ELOOP }
