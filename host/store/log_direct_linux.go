package store

import (
	"os"

	"golang.org/x/sys/unix"
)

// mapRing makes room for the whole ring on the disk and maps it, so that a stream can be read straight into it. It
// returns nil where that cannot be had; the log is then written to as any file.
func mapRing(f *os.File, size int64) []byte {
	if int64(int(size)) != size {
		return nil
	}
	// Without room a write to the mapping would be a signal instead of an error.
	if err := unix.Fallocate(int(f.Fd()), 0, 0, size); err != nil {
		return nil
	}
	b, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil
	}
	return b
}

func unmapRing(b []byte) {
	if b != nil {
		_ = unix.Munmap(b) // fails only for memory that is none
	}
}
