package overlay

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

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
		layer, st, err := u.look(p.dir(), part)
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
		target, err := readLink(p.dir().fd(layer), part)
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

func (p pair) fd(l Layer) int {
	if l == Upper {
		return p.up
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

func readLink(fd int, name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, name, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
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
	out := pair{-1, -1, false}
	if p.up >= 0 {
		fd, err := openDir(p.up, name)
		switch {
		case err == nil:
			out.up = fd
		case err != unix.ENOENT:
			return pair{-1, -1, false}, notDir(err)
		}
	}
	opaque := ""
	if out.up >= 0 && u.hiding {
		opaque = u.attr(out.up, "opaque")
		out.xwhite = opaque == "x"
	}
	if p.lo >= 0 && opaque != "y" {
		fd, err := openDir(p.lo, name)
		switch {
		case err == nil:
			out.lo = fd
		case out.up >= 0 && absent(err):
		default:
			out.close()
			return pair{-1, -1, false}, notDir(err)
		}
	}
	if out.up < 0 && out.lo < 0 {
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
		got, err := unix.Openat2(fd, name, &unix.OpenHow{Flags: flags, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV})
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
