package safefile

import (
	"errors"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"
)

// Stat is what a look at one path shows. The zero Stat is nothing.
type Stat struct {
	Mode         fs.FileMode // type and permissions
	Size         int64       // of a regular file, in bytes; else 0
	Mtime, Ctime int64       // nanoseconds since 1970; the change time is one that no program can set
	Dev, Ino     uint64
	Rdev         uint64 // of a device
	UID, GID     uint32
	Link         string // where a symbolic link points; see [StatAt]
}

// Exists reports whether there is anything.
func (s Stat) Exists() bool { return s != Stat{} }

// Untouched reports whether both are the same file, not touched in between.
func (s Stat) Untouched(o Stat) bool { return s.Moved(o) && s.Ctime == o.Ctime }

// Moved is Untouched for a file that was renamed in between, which sets its change time.
func (s Stat) Moved(o Stat) bool {
	return s.Dev == o.Dev && s.Ino == o.Ino && s.Size == o.Size && s.Mtime == o.Mtime
}

// StatOf turns what the kernel said into a Stat, without the target of a symbolic link.
func StatOf(st *unix.Stat_t) Stat {
	s := Stat{
		Mode: ModeOf(uint32(st.Mode)), Mtime: st.Mtim.Nano(), Ctime: st.Ctim.Nano(),
		Dev: uint64(st.Dev), Ino: st.Ino, UID: st.Uid, GID: st.Gid,
	}
	switch s.Mode.Type() {
	case 0:
		s.Size = st.Size
	case fs.ModeDevice, fs.ModeDevice | fs.ModeCharDevice:
		s.Rdev = uint64(st.Rdev)
	}
	return s
}

// StatAt looks at name in the directory fd and follows no link. Nothing there is the zero Stat and no error.
func StatAt(fd int, name string) (Stat, error) {
	var st unix.Stat_t
	err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return Stat{}, nil
	}
	if err != nil {
		return Stat{}, err
	}
	s := StatOf(&st)
	if s.Mode.Type() == fs.ModeSymlink {
		s.Link, err = ReadlinkAt(fd, name)
	}
	return s, err
}

// ReadlinkAt reads where the symbolic link name points.
func ReadlinkAt(fd int, name string) (string, error) {
	buf := make([]byte, maxName+1)
	n, err := unix.Readlinkat(fd, name, buf)
	if err == nil && n > maxName {
		err = unix.ENAMETOOLONG
	}
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// OpenDirAt opens the directory name. A symbolic link is ENOTDIR or ELOOP.
func OpenDirAt(fd int, name string) (int, error) {
	return unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// OpenFileAt opens name for reading and says what it is. It follows no link and never waits for a FIFO. What is not a
// regular file is [unix.EINVAL].
func OpenFileAt(fd int, name string) (int, unix.Stat_t, error) {
	var st unix.Stat_t
	f, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, st, err
	}
	if err = unix.Fstat(f, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = unix.EINVAL
	}
	if err != nil {
		unix.Close(f)
		return -1, st, err
	}
	return f, st, nil
}

// modeBits are the permission bits that Go and the kernel have at different places.
var modeBits = []struct {
	mode fs.FileMode
	bit  uint32
}{{fs.ModeSetuid, unix.S_ISUID}, {fs.ModeSetgid, unix.S_ISGID}, {fs.ModeSticky, unix.S_ISVTX}}

// ModeOf turns the kernel's mode into Go's.
func ModeOf(m uint32) fs.FileMode {
	mode := fs.FileMode(m & 0o777)
	switch m & unix.S_IFMT {
	case unix.S_IFDIR:
		mode |= fs.ModeDir
	case unix.S_IFLNK:
		mode |= fs.ModeSymlink
	case unix.S_IFIFO:
		mode |= fs.ModeNamedPipe
	case unix.S_IFSOCK:
		mode |= fs.ModeSocket
	case unix.S_IFBLK:
		mode |= fs.ModeDevice
	case unix.S_IFCHR:
		mode |= fs.ModeDevice | fs.ModeCharDevice
	}
	for _, b := range modeBits {
		if m&b.bit != 0 {
			mode |= b.mode
		}
	}
	return mode
}

// Bits are the permission, set-id and sticky bits of a mode, as chmod counts them.
func Bits(m fs.FileMode) uint32 {
	bits := uint32(m.Perm())
	for _, b := range modeBits {
		if m&b.mode != 0 {
			bits |= b.bit
		}
	}
	return bits
}

// Local reports whether p is a clean relative path, with slashes, of something below a directory. It may hold any
// bytes but NUL.
func Local(p string) bool {
	if strings.IndexByte(p, 0) >= 0 {
		return false
	}
	for more := true; more; {
		var name string
		if name, p, more = strings.Cut(p, "/"); name == "" || name == "." || name == ".." {
			return false
		}
	}
	return true
}
