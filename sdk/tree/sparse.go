package tree

import (
	"io"

	"golang.org/x/sys/unix"
)

// holeSize is how many zero bytes in a row, at a multiple of it, become a hole instead of being written: a file that is
// nothing but zeros, the cheapest of bombs, takes no room on disk.
const holeSize = 64 << 10

var zeros [holeSize]byte

// CopySparse writes what r holds to the empty file behind a descriptor, from its beginning on, and leaves long runs of
// zeros out as holes. It uses buf, and returns how many bytes r held.
func CopySparse(fd int, r io.Reader, buf []byte) (int64, error) {
	var at int64  // how much was read
	var hole bool // the file ends in a hole
	for {
		n, err := fill(r, buf)
		for part := buf[:n]; len(part) > 0; {
			p := part[:min(holeSize, len(part))]
			part = part[len(p):]
			if hole = len(p) == holeSize && string(p) == string(zeros[:]); !hole {
				if err := writeAt(fd, p, at); err != nil {
					return at, err
				}
			}
			at += int64(len(p))
		}
		if err == nil {
			continue
		}
		if err != io.EOF {
			return at, err
		}
		if hole {
			return at, unix.Ftruncate(fd, at)
		}
		return at, nil
	}
}

func writeAt(fd int, p []byte, at int64) error {
	for len(p) > 0 {
		n, err := unix.Pwrite(fd, p, at)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		p, at = p[n:], at+int64(n)
	}
	return nil
}

// fill reads until buf is full or r ends. Unlike io.ReadFull it leaves an end that was not expected, which is how a tar
// stream that was cut shows, apart from one that was.
func fill(r io.Reader, buf []byte) (n int, err error) {
	for n < len(buf) && err == nil {
		var m int
		m, err = r.Read(buf[n:])
		n += m
	}
	return n, err
}
