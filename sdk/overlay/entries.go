package overlay

import "io/fs"

// Entry is what a [Snapshot] knows of one path.
type Entry struct {
	Path         string      // relative to the directory, with slashes
	Mode         fs.FileMode // type and permissions
	Size         int64       // of a regular file, in bytes
	Mtime, Ctime int64       // nanoseconds since 1970; the change time is one that no program can set
	Ino          uint64
	Link         string // where a symbolic link points
}
