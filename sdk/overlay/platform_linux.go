package overlay

import (
	"encoding/binary"
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"
)

const (
	oPath     = unix.O_PATH
	utimeOmit = unix.UTIME_OMIT
)

func mknodat(fd int, name string, mode uint32, dev int) error {
	return unix.Mknodat(fd, name, mode, dev)
}

func cloneFile(out, in int) error { return unix.IoctlFileClone(out, in) }

func openBeneath(fd int, name string, flags uint64) (int, error) {
	return unix.Openat2(fd, name, &unix.OpenHow{Flags: flags,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV})
}

var direntTypes = [...]fs.FileMode{
	unix.DT_REG: 0, unix.DT_DIR: fs.ModeDir, unix.DT_LNK: fs.ModeSymlink, unix.DT_FIFO: fs.ModeNamedPipe,
	unix.DT_SOCK: fs.ModeSocket,
	unix.DT_CHR:  fs.ModeDevice | fs.ModeCharDevice, unix.DT_BLK: fs.ModeDevice, unix.DT_UNKNOWN: fs.ModeIrregular,
}

// readNames appends the names of a directory that are not in seen, otherwise like as. With more than most of them it stops.
func readNames(fd int, as Name, buf []byte, most int, out []Name, seen map[string]bool) ([]Name, error) {
	for len(out) <= most {
		n, err := unix.Getdents(fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return out, err
		}
		if n == 0 {
			break
		}
		// struct linux_dirent64: inode 8, offset 8, length 2, type 1, name with a zero byte.
		for b := buf[:n]; len(b) >= 20; {
			size := int(binary.NativeEndian.Uint16(b[16:]))
			if size < 20 || size > len(b) {
				return out, unix.EIO
			}
			name, kind := b[19:size], b[18]
			for i, c := range name {
				if c == 0 {
					name = name[:i]
					break
				}
			}
			b = b[size:]
			if string(name) == "." || string(name) == ".." || seen[string(name)] {
				continue
			}
			t := fs.ModeIrregular
			if int(kind) < len(direntTypes) && kind != unix.DT_UNKNOWN {
				t = direntTypes[kind]
			}
			out = append(out, Name{string(name), as.Layer, t, as.part})
		}
	}
	return out, nil
}
