// Package overlay says what changed in a directory: by reading the upper layer of an overlay file system against its
// lower one, or, for a directory that is written in place, by comparing it with a snapshot taken before.
//
// A [Union] is the merged view of two layers without any mount.
//
// Everything it looks at may be hostile and may change while it is looked at. It opens names one at a time below
// descriptors it holds, never follows a symbolic link, reads no file that is not regular, and bounds entries and depth.
package overlay

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/sdk/safefile"
)

// Kind names a kind of [Change].
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
	OldMode fs.FileMode // type and permissions before; 0 for something added
	NewMode fs.FileMode // type and permissions now; 0 for something deleted
	Size    int64       // of the file as it is now; 0 for what is not a regular file
}

// Difference is a change, and what was seen of its path in the lower directory when it was found.
type Difference struct {
	Change
	// Lower is what stood there, never looked at through a symbolic link; the zero Stat for nothing.
	Lower safefile.Stat
	// Seen is false when a directory on the way could not be read, so that Lower says nothing.
	Seen bool
}

// Options bound the work. The zero value is usable.
type Options struct {
	// MaxEntries bounds the entries looked at, and so memory; 0 means DefaultMaxEntries.
	MaxEntries int
	// MaxDepth bounds the levels of directories, and so open descriptors, two for each; 0 means DefaultMaxDepth.
	MaxDepth int
	// Trusted says that the overlay was mounted without the option userxattr, so its marks are trusted.overlay.* and
	// not user.overlay.*. The marks of the other name are data that a program may have written.
	Trusted bool
	// Contents makes Take remember a hash of every regular file, so that Snapshot.Changes can tell one that was only
	// touched from one that was changed, and a change of mode from one of contents as well. It reads everything twice.
	Contents bool
	// Frozen are layers between upper and lower, from the top, that nobody writes to. Their marks mean what those of upper
	// mean.
	Frozen []*os.Root
}

// The bounds that apply where Options holds a zero.
const (
	DefaultMaxEntries = 1_000_000
	DefaultMaxDepth   = 128
)

func (o Options) withDefaults() Options {
	if o.MaxEntries <= 0 {
		o.MaxEntries = DefaultMaxEntries
	}
	if o.MaxDepth <= 0 {
		o.MaxDepth = DefaultMaxDepth
	}
	return o
}

// Errors that come together with the changes that could be found.
var (
	// ErrTooMany means that a bound of Options was reached, and that there may be more changes.
	ErrTooMany = errors.New("more than allowed")
	// ErrUnreadable means that directories could not be read, and that there may be more changes in them.
	ErrUnreadable = errors.New("unreadable")
)

// gaps collects what keeps a list of changes from being complete.
type gaps struct {
	deep, unread           int
	firstDeep, firstUnread string
	entries                bool
	max                    Options
}

func (g *gaps) tooDeep(path string) {
	if g.deep++; g.deep == 1 || path < g.firstDeep {
		g.firstDeep = path
	}
}

func (g *gaps) unreadable(path string) {
	if g.unread++; g.unread == 1 || path < g.firstUnread {
		g.firstUnread = path
	}
}

func (g *gaps) err() error {
	var errs []error
	if g.entries {
		errs = append(errs, fmt.Errorf("%w: no more than %d entries were looked at", ErrTooMany, g.max.MaxEntries))
	}
	if g.deep > 0 {
		errs = append(errs, fmt.Errorf("%w: %d directories lie deeper than %d levels, the first is %.200q", ErrTooMany,
			g.deep, g.max.MaxDepth, g.firstDeep))
	}
	if g.unread > 0 {
		errs = append(errs, fmt.Errorf("%w: %d directories, the first is %.200q", ErrUnreadable, g.unread, g.firstUnread))
	}
	return errors.Join(errs...)
}

// sorted puts changes in the order of their paths, byte by byte.
func sorted(c []Change) []Change {
	slices.SortFunc(c, func(a, b Change) int { return strings.Compare(a.Path, b.Path) })
	return c
}

// join adds a name to a path; the top is "".
func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// Entry is what a [Snapshot] knows of one path.
type Entry struct {
	Path string // relative to the directory, with slashes; any bytes but NUL
	safefile.Stat
	// Content names the content of a regular file, in at most 32 bytes: its SHA-256 with Options.Contents, else what the
	// caller noted; empty where it is not known.
	Content string
}
