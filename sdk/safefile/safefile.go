package safefile

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
)

// Reason says why a file was refused. Reasons are stable: callers may print them as codes.
type Reason string

// The reasons.
const (
	ReasonSymlink  Reason = "symlink"   // the file or a directory on the way is a symbolic link
	ReasonHardlink Reason = "hard_link" // the file has more than one link
	ReasonSpecial  Reason = "special"   // a FIFO, socket or device
	ReasonDir      Reason = "directory" // a directory where a file is wanted
	ReasonTooBig   Reason = "too_big"   // larger than the cap for one file
	ReasonTotal    Reason = "total"     // the caps of all files together are used up
	ReasonTooMany  Reason = "too_many"  // more entries than allowed
	ReasonTooDeep  Reason = "too_deep"  // deeper than allowed
	ReasonName     Reason = "name"      // a name that must not be used as a path
	ReasonChanged  Reason = "changed"   // it changed while it was read
	ReasonMissing  Reason = "missing"   // there is nothing
	ReasonIO       Reason = "io"        // it cannot be read
)

// Error says which file was refused and why.
type Error struct {
	Path   string // as given, below the root
	Reason Reason
	Detail string // one line for a person
	Err    error  // the error underneath, if there is one
}

func (e *Error) Error() string { return e.Detail }

// Unwrap returns the error underneath.
func (e *Error) Unwrap() error { return e.Err }

// Info is a file as it was when it was opened or copied.
type Info struct {
	Size int64
	Mode fs.FileMode // permission bits
}

// Open opens a regular file for reading. max is the largest size allowed in bytes; negative means any.
func Open(root *os.Root, name string, max int64) (*os.File, Info, error) {
	return nil, Info{}, errNotImplemented
}

// ReadFile reads a regular file of at most max bytes.
func ReadFile(root *os.Root, name string, max int64) ([]byte, error) { return nil, errNotImplemented }

// Copied tells what [Copy] wrote.
type Copied struct {
	Info
	SHA256 string // hex
}

// Copy copies a regular file of at most max bytes to dst, and hashes it on the way. Holes are not read from disk, and
// stay holes when dst is an [os.File] that can seek. A file that grows beyond max meanwhile is an error.
func Copy(ctx context.Context, dst io.Writer, root *os.Root, name string, max int64) (Copied, error) {
	return Copied{}, errNotImplemented
}

// Entry is something that [Walk] met.
type Entry struct {
	Path string // below the root, with slashes
	Info fs.FileInfo
	Skip Reason // not empty: it is told for the record and must not be opened
}

// Caps bound a [Walk]. Zero means the default.
type Caps struct {
	Entries int // default 100,000
	Depth   int // default 64
}

// Walk calls fn for everything below dir ("." for all of it) in path order, without following anything. Directories
// come before what is in them, links and special files with Skip set. When the caps are used up it ends with an
// [Error]; what was met before has been told.
func Walk(ctx context.Context, root *os.Root, dir string, caps Caps, fn func(Entry) error) error {
	return errNotImplemented
}

var errNotImplemented = errors.New("not implemented")
