package tree

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"
)

// merger moves a whole tree from its stage into the directory around it.
type merger struct {
	dst   *os.Root
	stage string // name of the stage in dst
}

// check looks for what stands in the way of the directory p of the tree, before anything is moved.
func (m merger) check(p string) error {
	return m.each(p, func(name string, isDir, there bool, old fs.FileInfo) error {
		switch {
		case !there:
			return nil
		case isDir && old.IsDir():
			return m.check(name)
		case isDir:
			return fmt.Errorf("%q is a directory in the tree, and what is there is not", name)
		case old.IsDir():
			return fmt.Errorf("%q is a directory there, and none in the tree", name)
		}
		return nil
	})
}

// move moves what is in the directory p of the tree. A name that is not there yet is moved with all that is in it.
func (m merger) move(p string) error {
	return m.each(p, func(name string, isDir, there bool, _ fs.FileInfo) error {
		if isDir && there {
			return m.move(name)
		}
		from := path.Join(m.stage, name)
		err := m.dst.Rename(from, name)
		if errors.Is(err, syscall.EXDEV) {
			err = m.copy(from, name)
		}
		return err
	})
}

// each calls fn for every name in the directory p of the tree, with what is there already.
func (m merger) each(p string, fn func(name string, isDir, there bool, old fs.FileInfo) error) error {
	dir, err := openNow(m.dst, path.Join(m.stage, p))
	if err != nil {
		return err
	}
	entries, err := dir.ReadDir(-1)
	dir.Close()
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := path.Join(p, e.Name())
		old, err := m.dst.Lstat(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := fn(name, e.IsDir(), err == nil, old); err != nil {
			return err
		}
	}
	return nil
}

// copy moves what cannot be renamed, because another file system is mounted at its place.
func (m merger) copy(from, to string) error {
	st, err := m.dst.Lstat(from)
	if err != nil {
		return err
	}
	switch st.Mode().Type() {
	case fs.ModeDir:
		if err := m.dst.Mkdir(to, 0o700); err != nil {
			return err
		}
		if err := m.move(to); err != nil { // one name in the tree and outside of it

			return err
		}
		return m.dst.Chmod(to, st.Mode().Perm())
	case fs.ModeSymlink:
		target, err := m.dst.Readlink(from)
		if err != nil {
			return err
		}
		if err := m.dst.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return m.dst.Symlink(target, to)
	}
	in, err := openNow(m.dst, from)
	if err != nil {
		return err
	}
	defer in.Close()
	if now, err := in.Stat(); err != nil || !os.SameFile(now, st) {
		return errors.Join(fmt.Errorf("%q was replaced meanwhile", to), err)
	}
	if err := m.dst.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	out, err := m.dst.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Chmod(st.Mode().Perm()), out.Close())
}

// openNow opens what is to be read, and does not wait where a FIFO took its place.
func openNow(root *os.Root, name string) (*os.File, error) {
	return root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}
