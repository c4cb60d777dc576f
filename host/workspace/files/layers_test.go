package files

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/overlay"
)

// layeredBox is a union whose upper layer gets what an overlay file system would write there.
type layeredBox struct {
	*overlay.Union
	lower, upper string
}

// WriteFile writes a file, through symbolic links, and makes the directories that it needs.
func (l layeredBox) WriteFile(name string, r io.Reader, mode fs.FileMode) error {
	at, err := l.Resolve(name)
	if errors.Is(err, fs.ErrNotExist) {
		if err = l.MkdirAll(path.Dir(name), 0o755); err == nil {
			at, err = l.Resolve(name)
		}
	}
	if err != nil {
		return err
	}
	if n, err := l.Lstat(at); err == nil && !n.Mode.IsRegular() {
		return &fs.PathError{Op: "write", Path: name, Err: unix.EISDIR}
	}
	if err := l.MkdirAll(path.Dir(at), 0o755); err != nil {
		return err
	}
	file := filepath.Join(l.upper, at)
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) { // a whiteout, too
		return err
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Chmod(mode), f.Close())
}

// MkdirAll makes a directory; one of the lower layer gets its part in the upper one.
func (l layeredBox) MkdirAll(name string, mode fs.FileMode) error {
	at, err := l.Resolve(name)
	if errors.Is(err, fs.ErrNotExist) && path.Dir(name) != "." {
		if err = l.MkdirAll(path.Dir(name), mode); err == nil {
			at, err = l.Resolve(name)
		}
	}
	if err != nil || at == "." {
		return err
	}
	n, err := l.Lstat(at)
	switch {
	case err == nil && !n.Mode.IsDir():
		return &fs.PathError{Op: "mkdir", Path: name, Err: unix.ENOTDIR}
	case err == nil:
		mode = n.Mode.Perm()
	}
	if err := l.MkdirAll(path.Dir(at), 0o755); err != nil {
		return err
	}
	dir := filepath.Join(l.upper, at)
	if fi, err := os.Lstat(dir); err == nil && fi.IsDir() {
		return nil
	}
	hidden := os.Remove(dir) == nil // a whiteout
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, mode)); err != nil || !hidden {
		return err
	}
	return unix.Setxattr(dir, "user.overlay.opaque", []byte("y"), 0)
}

// Remove removes what is at a path, which a whiteout hides in the lower layer.
func (l layeredBox) Remove(name string, recursive bool) error {
	n, err := l.Lstat(name)
	if err != nil {
		return err
	}
	if n.Mode.IsDir() && !recursive {
		return &fs.PathError{Op: "remove", Path: name, Err: unix.EISDIR}
	}
	at := filepath.Join(l.upper, n.Path)
	if err := os.RemoveAll(at); err != nil {
		return err
	}
	if _, err := os.Lstat(filepath.Join(l.lower, n.Path)); err != nil {
		return nil //nolint:nilerr // nothing is to be hidden
	}
	if err := l.MkdirAll(path.Dir(n.Path), 0o755); err != nil {
		return err
	}
	return unix.Mknod(at, unix.S_IFCHR, 0)
}
