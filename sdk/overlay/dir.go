package overlay

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/safefile"
)

// dir is an open directory. Names in it are looked up one at a time, so that no symbolic link is ever followed.
type dir struct {
	f      *os.File // nil for none
	shut   *shut    // not nil when close has permissions to put back
	unread bool     // of none: there is one, and it cannot be read
}

// shut is a directory that was opened against its permissions.
type shut struct {
	at   int // O_PATH
	mode uint32
}

func openTop(root *os.Root) (dir, error) {
	f, err := root.Open(".")
	return dir{f: f}, err
}

func (d dir) fd() int { return int(d.f.Fd()) }

func (d dir) close() {
	if d.f != nil {
		d.f.Close()
	}
	if d.shut != nil {
		_ = unix.Chmod(fdPath(d.shut.at), d.shut.mode) // ours, and just changed: there is nothing to fail and nothing to do
		unix.Close(d.shut.at)
	}
}

// fdPath names the inode that a descriptor has open, whatever stands at its name meanwhile.
func fdPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// sub opens the directory called name. What is no directory, a symbolic link to one included, is ENOTDIR.
func (d dir) sub(name string) (dir, error) {
	fd, err := safefile.OpenDirAt(d.fd(), name)
	// Reading the list needs the one permission, looking at what is listed the other.
	if err == nil && unix.Faccessat(fd, ".", unix.X_OK, unix.AT_EACCESS) == unix.EACCES {
		unix.Close(fd)
		err = unix.EACCES
	}
	if err == unix.EACCES {
		return d.force(name)
	}
	if err != nil {
		return dir{}, err
	}
	return dir{f: os.NewFile(uintptr(fd), name)}, nil
}

// force opens a directory of ours whose permissions keep even us out, as a program in a sandbox that runs as our user
// can make one to hide what is in it. The permissions are put back when the directory is closed.
func (d dir) force(name string) (dir, error) {
	at, err := unix.Openat(d.fd(), name, oPath|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return dir{}, err
	}
	var st unix.Stat_t
	err = unix.Fstat(at, &st)
	if err == nil && int(st.Uid) != os.Geteuid() {
		err = unix.EACCES
	}
	if err == nil {
		err = unix.Chmod(fdPath(at), uint32(st.Mode&0o7777|0o500))
	}
	if err != nil {
		unix.Close(at)
		return dir{}, err
	}
	out := dir{shut: &shut{at, uint32(st.Mode & 0o7777)}}
	fd, err := unix.Open(fdPath(at), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		out.close()
		return dir{}, err
	}
	out.f = os.NewFile(uintptr(fd), name)
	return out, nil
}

// names lists at most most names, sorted, and says whether there were more.
func (d dir) names(most int) (names []string, more bool, err error) {
	for len(names) <= most {
		batch, err := d.f.Readdirnames(min(4096, most-len(names)+1))
		names = append(names, batch...)
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, false, fmt.Errorf("list directory: %w", err)
		}
	}
	if len(names) > most {
		names, more = names[:most], true
	}
	slices.Sort(names)
	return names, more, nil
}

// stat looks at name itself; ok is false when there is nothing.
func (d dir) stat(name string) (st unix.Stat_t, ok bool, err error) {
	if d.f == nil {
		return st, false, nil
	}
	err = unix.Fstatat(d.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == unix.ENOENT || err == unix.ENOTDIR {
		return st, false, nil
	}
	return st, err == nil, err
}

// xattr reads a short extended attribute of name, or of the directory itself when name is empty; "" when it is not
// there.
func (d dir) xattr(name, attr string) string {
	var buf [16]byte
	var n int
	var err error
	if name == "" {
		n, err = unix.Fgetxattr(d.fd(), attr, buf[:])
	} else {
		// There is no getxattrat before Linux 6.13; the path over /proc does the same without following name.
		n, err = unix.Lgetxattr(fdPath(d.fd())+"/"+name, attr, buf[:])
	}
	if err != nil {
		return ""
	}
	return string(buf[:n])
}

func isDir(st unix.Stat_t) bool     { return st.Mode&unix.S_IFMT == unix.S_IFDIR }
func isRegular(st unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFREG }
func isLink(st unix.Stat_t) bool    { return st.Mode&unix.S_IFMT == unix.S_IFLNK }

func sizeOf(st unix.Stat_t) int64 {
	if isRegular(st) {
		return st.Size
	}
	return 0
}
