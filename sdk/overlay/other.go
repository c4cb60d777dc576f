//go:build !linux

package overlay

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
)

// Changes is for Linux, which alone has overlay file systems.
func Changes(ctx context.Context, lower, upper *os.Root, o Options) ([]Change, error) {
	return nil, errors.ErrUnsupported
}

// Differences is for Linux, which alone has overlay file systems.
func Differences(ctx context.Context, lower, upper *os.Root, o Options) ([]Difference, error) {
	return nil, errors.ErrUnsupported
}

// Snapshot is what a directory looked like at one time.
type Snapshot struct{}

// Take is for Linux.
func Take(ctx context.Context, root *os.Root, o Options) (*Snapshot, error) {
	return nil, errors.ErrUnsupported
}

// Len is 0.
func (s *Snapshot) Len() int { return 0 }

// Entries yields nothing.
func (s *Snapshot) Entries() iter.Seq[Entry] { return func(func(Entry) bool) {} }

// Changes is for Linux.
func (s *Snapshot) Changes(ctx context.Context, root *os.Root, o Options) ([]Change, error) {
	return nil, errors.ErrUnsupported
}

// Union is the merged view of two directories, for Linux.
type Union struct{}

// Dir is a directory that Scan looks at, for Linux.
type Dir struct {
	Path string
	Err  error
}

// OpenUnion is for Linux.
func OpenUnion(lower, upper string, o UnionOptions) (*Union, error) {
	return nil, errors.ErrUnsupported
}

// Close does nothing.
func (u *Union) Close() error { return nil }

// Resolve is for Linux.
func (u *Union) Resolve(name string) (string, error) { return "", errors.ErrUnsupported }

// Lstat is for Linux.
func (u *Union) Lstat(name string) (Node, error) { return Node{}, errors.ErrUnsupported }

// Open is for Linux.
func (u *Union) Open(name string, max int64) (*os.File, Node, error) {
	return nil, Node{}, errors.ErrUnsupported
}

// Scan is for Linux.
func (u *Union) Scan(ctx context.Context, dir string, o ScanOptions, visit func(d *Dir, names []Name) error) error {
	return errors.ErrUnsupported
}

// Lstat is for Linux.
func (d *Dir) Lstat(n Name) (Node, error) { return Node{}, errors.ErrUnsupported }

// ReadFile is for Linux.
func (d *Dir) ReadFile(n Name, max int64, buf []byte) ([]byte, error) {
	return nil, errors.ErrUnsupported
}

// WriteFile is for Linux.
func (u *Union) WriteFile(name string, r io.Reader, mode fs.FileMode) error {
	return errors.ErrUnsupported
}

// MkdirAll is for Linux.
func (u *Union) MkdirAll(name string, mode fs.FileMode) error { return errors.ErrUnsupported }

// Symlink is for Linux.
func (u *Union) Symlink(target, name string) error { return errors.ErrUnsupported }

// Chmod is for Linux.
func (u *Union) Chmod(name string, mode fs.FileMode) error { return errors.ErrUnsupported }

// Remove is for Linux.
func (u *Union) Remove(name string, recursive bool) error { return errors.ErrUnsupported }

// Save is for Linux.
func (s *Snapshot) Save(w io.Writer) error { return errors.ErrUnsupported }

// Load is for Linux.
func Load(r io.Reader) (*Snapshot, error) { return nil, errors.ErrUnsupported }
