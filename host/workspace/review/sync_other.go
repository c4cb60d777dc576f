//go:build !linux

package review

import "golang.org/x/sys/unix"

// syncDisk forces all that waits to the disk.
func syncDisk(string) error { return unix.Sync() }

// exchange swaps two names of a directory at once.
func exchange(fd int, a, b string) error { return unix.RenameatxNp(fd, a, fd, b, unix.RENAME_SWAP) }

// renameNew renames a file to a name that must not exist.
func renameNew(fd int, from, to string) error {
	return unix.RenameatxNp(fd, from, fd, to, unix.RENAME_EXCL)
}
