package review

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
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
