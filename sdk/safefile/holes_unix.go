//go:build linux || darwin

package safefile

import (
	"errors"

	"golang.org/x/sys/unix"
)

const (
	seekData = unix.SEEK_DATA
	seekHole = unix.SEEK_HOLE
)

// noMoreData reports whether a seek failed because nothing but a hole follows.
func noMoreData(err error) bool { return errors.Is(err, unix.ENXIO) }
