// Package safefile reads files that somebody hostile made, without following, hanging or filling up.
//
// A file is named below an [os.Root]. No component of the name may be a symbolic link, not even one that stays inside.
// It is opened without blocking and without following, and must then be a regular file, with one link, within the size
// allowed; whatever else stands there (FIFO, device, socket, hard link, sparse giant) is an [Error] that names the path
// and the [Reason]. Memory is bounded by the caps.
package safefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
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
	ReasonGit      Reason = "git"       // git would take its directory for a repository
)

// Error says which file was refused and why.
type Error struct {
	Path   string // as given, below the root
	Reason Reason
	Detail string // one line for a person, without the path
	Err    error  // the error underneath, if there is one
}

// Error quotes the path, so that control characters in it never reach a terminal.
func (e *Error) Error() string { return quote(e.Path) + ": " + e.Detail }

// Unwrap returns the error underneath.
func (e *Error) Unwrap() error { return e.Err }

// quote shows at most 200 bytes of a path.
func quote(p string) string {
	if len(p) > 200 {
		return fmt.Sprintf("%+q... (%d bytes)", p[:200], len(p))
	}
	return fmt.Sprintf("%+q", p)
}

func refuse(name string, reason Reason, format string, args ...any) *Error {
	return &Error{Path: name, Reason: reason, Detail: fmt.Sprintf(format, args...)}
}

// ioError turns an error of the operating system into one that names the path once.
func ioError(name string, err error) *Error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	e := &Error{Path: name, Reason: ReasonIO, Detail: err.Error(), Err: err}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		e.Reason, e.Detail = ReasonMissing, "there is no such file"
	case errors.Is(err, syscall.ENAMETOOLONG):
		e.Reason = ReasonName
	}
	return e
}

// Info is a file as it was when it was opened or copied.
type Info struct {
	Size int64
	Mode fs.FileMode // permission bits
}

// maxName bounds a name in bytes, as PATH_MAX of Linux does.
const maxName = 4096

// checkName refuses names that mean another file than they say, or none.
func checkName(name string) *Error {
	switch {
	case name == "":
		return refuse(name, ReasonName, "the path is empty")
	case len(name) > maxName:
		return refuse(name, ReasonName, "the path has %d bytes, at most %d are allowed", len(name), maxName)
	case strings.IndexByte(name, 0) >= 0:
		return refuse(name, ReasonName, "the path holds a zero byte")
	case path.IsAbs(name):
		return refuse(name, ReasonName, "the path is absolute, it must be relative")
	case path.Clean(name) != name || name == ".." || strings.HasPrefix(name, "../"):
		return refuse(name, ReasonName, "the path must be clean and stay below its root")
	}
	return nil
}

// Open opens a regular file for reading. name is a clean, relative slash path. max is the largest size allowed in
// bytes; negative means any. The error is an *[Error].
func Open(root *os.Root, name string, max int64) (*os.File, Info, error) {
	return open(root, name, max, checkFile)
}

// OpenLinked is [Open] for directories that no sandbox can write to: a file may have several links there.
func OpenLinked(root *os.Root, name string, max int64) (*os.File, Info, error) {
	return open(root, name, max, func(fi fs.FileInfo, name string,
		max int64) *Error {
		return Refuse(name, fi.Mode(), 1, fi.Size(), max)
	})
}

// check refuses a file.
type check func(fi fs.FileInfo, name string, max int64) *Error

func open(root *os.Root, name string, max int64, ok check) (*os.File, Info, error) {
	if err := checkName(name); err != nil {
		return nil, Info{}, err
	}
	parent, base, done, err := descend(root, name)
	if err != nil {
		return nil, Info{}, err
	}
	defer done()
	f, info, rerr := openAt(parent, base, name, max, ok)
	if rerr != nil {
		return nil, Info{}, rerr
	}
	return f, info, nil
}

// descend opens the directory that holds the last component of name, through real directories only. done closes it.
func descend(root *os.Root, name string) (parent *os.Root, base string, done func(), err error) {
	parent, done = root, func() {}
	parts := strings.Split(name, "/")
	for i, part := range parts[:len(parts)-1] {
		sub, err := openDir(parent, part, strings.Join(parts[:i+1], "/"))
		done()
		if err != nil {
			var bad *Error
			if errors.As(err, &bad) {
				bad.Detail = "directory " + quote(bad.Path) + ": " + bad.Detail
				bad.Path = name
			}
			return nil, "", nil, err
		}
		parent, done = sub, func() { sub.Close() }
	}
	return parent, parts[len(parts)-1], done, nil
}

// openDir opens a directory in parent that is no symbolic link. An [os.Root] follows links that stay inside; that the
// directory opened is the one looked at before rules them out.
func openDir(parent *os.Root, base, name string) (*os.Root, error) {
	before, err := parent.Lstat(base)
	if err != nil {
		return nil, ioError(name, err)
	}
	if before.Mode()&fs.ModeSymlink != 0 {
		return nil, refuse(name, ReasonSymlink, "it is a symbolic link")
	}
	if !before.IsDir() {
		return nil, refuse(name, ReasonMissing, "it is not a directory")
	}
	sub, err := OpenRoot(parent, base)
	if err != nil {
		return nil, ioError(name, err)
	}
	after, err := sub.Stat(".")
	if err != nil {
		sub.Close()
		return nil, ioError(name, err)
	}
	if !os.SameFile(before, after) {
		sub.Close()
		return nil, refuse(name, ReasonChanged, "it was replaced while it was opened")
	}
	return sub, nil
}

// MkdirAll makes the directory name of root with its parents, as far as they are missing, and opens it. No component
// may be a symbolic link. name is a clean, relative slash path.
func MkdirAll(root *os.Root, name string, perm fs.FileMode) (*os.Root, error) {
	dir, err := root.OpenRoot(".")
	if err != nil || name == "." {
		return dir, err
	}
	for part := range strings.SplitSeq(name, "/") {
		if err := dir.Mkdir(part, perm); err != nil && !errors.Is(err, fs.ErrExist) {
			dir.Close()
			return nil, err
		}
		sub, err := openDir(dir, part, name)
		dir.Close()
		if err != nil {
			return nil, err
		}
		dir = sub
	}
	return dir, nil
}

// openAt opens the regular file base of parent; name is what errors call it.
func openAt(parent *os.Root, base, name string, max int64, ok check) (*os.File, Info, *Error) {
	before, err := parent.Lstat(base)
	if err != nil {
		return nil, Info{}, ioError(name, err)
	}
	if err := ok(before, name, max); err != nil {
		return nil, Info{}, err
	}
	// Between looking and opening anything may have taken its place: a FIFO must not block, and what was opened must
	// be what was looked at.
	f, err := parent.OpenFile(base, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, Info{}, ioError(name, err)
	}
	after, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, Info{}, ioError(name, err)
	}
	bad := ok(after, name, max)
	if bad == nil && !os.SameFile(before, after) {
		bad = refuse(name, ReasonChanged, "it was replaced while it was opened")
	}
	if bad != nil {
		f.Close()
		return nil, Info{}, bad
	}
	return f, Info{Size: after.Size(), Mode: after.Mode().Perm()}, nil
}

// checkFile refuses everything but a regular file with one link within the size.
func checkFile(fi fs.FileInfo, name string, max int64) *Error {
	links := 1
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		links = int(st.Nlink)
	}
	return Refuse(name, fi.Mode(), links, fi.Size(), max)
}

// Refuse says why a file with such attributes must not be opened; nil for a regular file with one link and at most max
// bytes, negative meaning any. It is for callers that open files by other means than [Open].
func Refuse(name string, mode fs.FileMode, links int, size, max int64) *Error {
	if reason, what := kindOf(mode); reason != "" {
		return refuse(name, reason, "it is %s", what)
	}
	if links > 1 {
		return refuse(name, ReasonHardlink, "it has %d links", links)
	}
	if max >= 0 && size > max {
		return refuse(name, ReasonTooBig, "it has %d bytes, at most %d are allowed", size, max)
	}
	return nil
}

// kindOf names what is not a regular file.
func kindOf(m fs.FileMode) (Reason, string) {
	switch {
	case m.IsRegular():
		return "", ""
	case m&fs.ModeSymlink != 0:
		return ReasonSymlink, "a symbolic link"
	case m.IsDir():
		return ReasonDir, "a directory"
	case m&fs.ModeNamedPipe != 0:
		return ReasonSpecial, "a FIFO"
	case m&fs.ModeSocket != 0:
		return ReasonSpecial, "a socket"
	case m&fs.ModeDevice != 0:
		return ReasonSpecial, "a device"
	}
	return ReasonSpecial, "not a regular file"
}

// ReadFile reads a regular file of at most max bytes, which must not be negative. The error is an *[Error].
func ReadFile(root *os.Root, name string, max int64) ([]byte, error) {
	if max < 0 {
		return nil, refuse(name, ReasonTooBig, "reading it whole needs a cap")
	}
	f, info, err := Open(root, name, max)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, info.Size)
	if _, err := io.ReadFull(f, b); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, refuse(name, ReasonChanged, "it became shorter while it was read")
		}
		return nil, ioError(name, err)
	}
	return b, nil
}

// OpenRoot opens the directory name of root as its own root, like [os.Root.OpenRoot]: links are followed that stay
// inside. Where a FIFO stands, or was put in this moment, it fails, and does not wait until somebody writes to that.
func OpenRoot(root *os.Root, name string) (*os.Root, error) {
	dir, err := root.OpenRoot(name + "/.") // a name that is gone through is opened as nothing but a directory
	var at *fs.PathError
	if errors.As(err, &at) {
		at.Path = name
	}
	return dir, err
}
