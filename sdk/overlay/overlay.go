// Package overlay tells what changed in a directory: by reading the upper layer of an overlay file system against its
// lower one, or, for a directory that is written in place, by comparing it with a snapshot taken before.
//
// Everything it looks at may be hostile. It opens names one at a time below descriptors it holds, never follows a
// symbolic link, reads no file that is not regular, and bounds entries, depth and bytes.
package overlay

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"
)

// Kind names a kind of Change.
type Kind string

// The kinds.
const (
	Added    Kind = "added"
	Modified Kind = "modified" // content, and perhaps mode
	Deleted  Kind = "deleted"
	Mode     Kind = "mode"    // permissions only
	Symlink  Kind = "symlink" // a symbolic link that points elsewhere
	Type     Kind = "type"    // something of another type stands there
)

// Change is one difference. A directory that is new or gone is one Change, and so is everything in it.
type Change struct {
	Path    string      // relative to the directory, with slashes; any bytes but NUL
	Kind    Kind        // what happened to it
	OldMode fs.FileMode // 0 for something added
	NewMode fs.FileMode // 0 for something deleted
	Size    int64       // of the file as it is now; 0 for what is not a regular file
}

// Options bound the work. The zero value is usable.
type Options struct {
	Ignore     []string // paths, with all below them, that are no part of the comparison
	MaxEntries int      // entries looked at, 0 means 1,000,000
	MaxDepth   int      // 0 means 128
	StatOnly   bool     // take a copied-up file of the same size and mode for unchanged if its mtime is the same too, else for modified
}

// ErrTooMany is returned, with the changes found so far, when a bound of Options was reached.
var ErrTooMany = errors.New("more entries than allowed")

var errTodo = errors.New("not implemented")

// Changes lists what upper, the upper directory of an overlay mount, changes in lower, in path order. Neither may be
// mounted over while it works, but both may be in use.
func Changes(ctx context.Context, lower, upper *os.Root, o Options) ([]Change, error) {
	return nil, errTodo
}

// Snapshot is what a directory looked like at one time.
type Snapshot struct{ taken time.Time }

// Take looks at every entry below root.
func Take(ctx context.Context, root *os.Root, o Options) (*Snapshot, error) { return nil, errTodo }

// Changes lists what differs below root since the snapshot, in path order. A regular file counts as modified when its
// size, modification time, change time or inode differ.
func (s *Snapshot) Changes(ctx context.Context, root *os.Root, o Options) ([]Change, error) {
	return nil, errTodo
}
