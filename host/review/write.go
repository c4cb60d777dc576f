package review

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// write makes the temporary file or link, complete but for its name.
func (e *engine) write(fd int, tmp string, m *move, id ident, replaces bool) error {
	if err := ignoreMissing(unix.Unlinkat(fd, tmp, 0)); err != nil {
		return err
	}
	uid, gid, err := owner(fd, m, id, replaces)
	if err != nil {
		return err
	}
	if m.to.Type == Symlink {
		if err := unix.Symlinkat(string(m.to.Link), fd, tmp); err != nil {
			return err
		}
		return chown(uid, gid, func() error { return unix.Fchownat(fd, tmp, uid, gid, unix.AT_SYMLINK_NOFOLLOW) })
	}
	b, err := m.content()
	if err != nil {
		return err
	}
	src, err := b.open()
	if err != nil {
		return err
	}
	defer src.Close()
	out, err := unix.Openat(fd, tmp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(out), tmp)
	sum := sha256.New()
	if _, err = io.Copy(io.MultiWriter(f, sum), src); err == nil && hex.EncodeToString(sum.Sum(nil)) != m.to.SHA256 {
		err = errors.New("its content in hutch's store is damaged")
	}
	if err == nil {
		err = chown(uid, gid, func() error { return f.Chown(uid, gid) })
	}
	if err == nil {
		err = writeXattrs(out, m.xattrs())
	}
	if err == nil {
		err = unix.Fchmod(out, m.to.Mode) // after the owner: a change of it clears set-id bits; an access control list sets the mode
	}
	if err == nil && m.to.Ident.Mtime != 0 {
		err = setTimes(fd, tmp, m.to.Ident.Mtime)
	}
	return errors.Join(err, f.Close())
}

// xattrs are the attributes of a new file: those of the version that is put back, else of the one it replaces.
func (m *move) xattrs() []xattr {
	if m.to.Ident != (ident{}) {
		return m.to.Xattrs
	}
	if m.from.Type != File {
		return nil
	}
	return m.from.Xattrs
}

// owner is whose a new file is: that of the version which is put back, else of the one it replaces, else of the
// directory it lies in. Never the sandbox's.
func owner(fd int, m *move, id ident, replaces bool) (uid, gid int, err error) {
	switch {
	case m.to.Ident != (ident{}):
		return int(m.to.Ident.UID), int(m.to.Ident.GID), nil
	case replaces && os.Geteuid() != 0: // the owner cannot be kept then, but the group can
		return os.Geteuid(), int(id.GID), nil
	case replaces:
		return int(id.UID), int(id.GID), nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, 0, err
	}
	if uint32(st.Mode)&unix.S_ISGID == 0 && os.Geteuid() != 0 {
		return os.Geteuid(), os.Getegid(), nil
	}
	return int(st.Uid), int(st.Gid), nil
}

// chown gives a file its owner as far as we may. Only root can give files away; a user's are the user's anyway, and a
// group that is not the user's is not worth failing for.
func chown(uid, gid int, f func() error) error {
	if os.Geteuid() == 0 {
		return f()
	}
	if uid == os.Geteuid() && gid != os.Getegid() {
		_ = f()
	}
	return nil
}

// setTimes sets when a file was written, to the nanosecond.
func setTimes(fd int, name string, mtime int64) error {
	t := unix.NsecToTimespec(mtime)
	return unix.UtimesNanoAt(fd, name, []unix.Timespec{t, t}, unix.AT_SYMLINK_NOFOLLOW)
}

// chmodAt sets permissions without following a link, also of what we may not read.
func chmodAt(fd int, name string, mode uint32) error {
	const flags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	f, err := unix.Openat(fd, name, flags, 0)
	if errors.Is(err, unix.EACCES) {
		return unix.Fchmodat(fd, name, mode, unix.AT_SYMLINK_NOFOLLOW)
	}
	if err != nil {
		return err
	}
	defer unix.Close(f)
	return unix.Fchmod(f, mode)
}

// hashFile is the hash of a file of the project.
func hashFile(d *dir, path string) (string, error) {
	f, _, err := d.open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
