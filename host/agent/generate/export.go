package generate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// CheckTarget refuses a directory that [Story.Copy] would refuse, before anything is asked of a model.
func CheckTarget(dir string, force bool) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return creatable(dir)
	case err != nil:
		return err
	case len(entries) > 0 && !force:
		return fmt.Errorf("%s is not empty; --force replaces what stands in the way", dir)
	}
	return nil
}

// creatable refuses a missing directory that this user could not make.
func creatable(dir string) error {
	at, err := filepath.Abs(dir)
	for err == nil {
		at = filepath.Dir(at)
		if _, err = os.Stat(at); err == nil {
			if err = unix.Access(at, unix.W_OK|unix.X_OK); err != nil {
				return fmt.Errorf("%s cannot be made: %s: %w", dir, at, err)
			}
			return nil
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	return err
}

// Copy writes the files of the program that works below dir, which is made when it is missing and must be empty unless
// force is set: then files of the same names are replaced, and nothing else is touched. No path leads out of dir, not
// through a symbolic link either. Inputs are not copied.
func (s *Story) Copy(dir string, force bool) error {
	if !s.OK || s.program == nil {
		return errors.New("there is no program that works")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := CheckTarget(dir, force); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, f := range s.program.files {
		if err := put(root, f.Path, f.Mode, f.Content, force); err != nil {
			return fmt.Errorf("copy the program to %s: %w", dir, err)
		}
	}
	s.Final.Copied = dir
	return nil
}

// put writes one file, beside its place first when it replaces another one: that is either whole or as it was.
func put(root *os.Root, name string, mode fs.FileMode, content []byte, force bool) error {
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	target := name
	if force {
		if st, err := root.Lstat(name); err == nil && st.IsDir() {
			return fmt.Errorf("%s is a directory", name)
		}
		target = path.Join(path.Dir(name), ".hutch-generate-"+path.Base(name))
		if err := root.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	f, err := root.OpenFile(target, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode.Perm())
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Close())
	if err == nil && target != name {
		err = root.Rename(target, name)
	}
	if err != nil && target != name {
		_ = root.Remove(target)
	}
	return err
}
