//go:build !linux

package overlay

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"
)

// Other systems have no layers: what only those need is refused.
const (
	oPath     = unix.O_RDONLY
	utimeOmit = -2 // UTIME_OMIT of macOS
)

func mknodat(int, string, uint32, int) error { return unix.ENOTSUP }

func cloneFile(int, int) error { return unix.ENOTSUP }

func openBeneath(int, string, uint64) (int, error) { return -1, unix.ENOSYS }

// readNames appends the names of a directory that are not in seen, otherwise like as. With more than most of them it
// stops. Types are looked up later.
func readNames(fd int, as Name, buf []byte, most int, out []Name, seen map[string]bool) ([]Name, error) {
	for len(out) <= most {
		n, err := unix.ReadDirent(fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			return out, err
		}
		_, _, names := unix.ParseDirent(buf[:n], -1, nil)
		for _, name := range names {
			if !seen[name] {
				out = append(out, Name{name, as.Layer, fs.ModeIrregular, as.part})
			}
		}
	}
	return out, nil
}
