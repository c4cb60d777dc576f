package overlay

import (
	"errors"
	"io/fs"
	"time"
)

// Layer names one of the two sides of a [Union].
type Layer string

// The layers.
const (
	Upper Layer = "upper" // what was written, frozen layers included
	Lower Layer = "lower" // what was there before
)

// Node is one name of a [Union].
type Node struct {
	Path    string      // relative to the top, with slashes; "." for the top itself; any bytes but NUL
	Layer   Layer       // the one that the name, and the content of a file, comes from
	Merged  bool        // a directory that both layers have a part of
	Mode    fs.FileMode // type and permissions
	Size    int64       // of a regular file, in bytes; else 0
	ModTime time.Time
	Links   int    // hard links of what is no directory
	Target  string // of a symbolic link, as it is written there
}

// UnionOptions tell how a [Union] is to be read.
type UnionOptions struct {
	// Trusted is that of [Options].
	Trusted bool
	// At is the absolute path at which programs see the union. Absolute symbolic links below it lead to the same place in
	// the union; with "" every absolute link leads out.
	At string
	// Frozen are layers between the two, from the top, that nobody writes to: see [Options].
	Frozen []string
}

// ScanOptions bound a [Union.Scan]. The zero value is usable.
type ScanOptions struct {
	// Depth is how many levels are looked at; 1 is the directory's own names. 0 means DefaultMaxDepth.
	Depth int
	// MaxEntries bounds the names; 0 means DefaultMaxEntries. With more of them the scan ends with ErrTooMany, and which
	// ones it has seen is not defined.
	MaxEntries int
	// Skip, when set, says which names are left out, a directory with all that is in it. It is called concurrently.
	Skip func(path string, isDir bool) bool
}

// Name is one name in a directory of a [Union].
type Name struct {
	Name  string
	Layer Layer
	Type  fs.FileMode // type bits only

	part int // of the directory's parts in upper and the frozen layers
}

// Errors of a [Union], besides those of the file system.
var (
	// ErrOutside means that a path, or a symbolic link on it, leads out of the union.
	ErrOutside = errors.New("it leads out of the directory")
	// ErrMountPoint means that another file system is mounted on a directory of a layer, which an overlay does not show.
	ErrMountPoint = errors.New("another file system is mounted there")
)
