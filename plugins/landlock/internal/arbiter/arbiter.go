// Package arbiter answers the system calls that the filter of a command leaves to the plugin: changes of modes and
// times of files, which it makes itself where they are allowed. The kernel holds the caller until the answer.
//
// A program can change its memory while it waits. So nothing that depends on memory is let through: the arbiter copies
// the arguments once, opens what they name, and decides about what it has opened.
package arbiter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/seccomp/notify"
)

// Arbiter serves the listener of one command.
type Arbiter struct {
	listener *os.File
	writable []string // directories, without symbolic links in their paths
	done     chan struct{}
}

// Serve answers until nobody is left who could ask, or End.
func Serve(listener *os.File, writable []string) *Arbiter {
	a := &Arbiter{listener: listener, writable: writable, done: make(chan struct{})}
	go func() {
		defer close(a.done)
		notify.Serve(listener, a.answer)
	}()
	return a
}

// End stops answering, once the command and its descendants are gone. A nil Arbiter has nothing to stop.
func (a *Arbiter) End() {
	if a != nil {
		a.listener.Close()
		<-a.done
	}
}

func (a *Arbiter) answer(r *notify.Request) notify.Response {
	var err error
	switch r.Nr {
	case sysChmod:
		if err = unix.EFAULT; r.Args[0] != 0 {
			err = a.chmod(r, unix.AT_FDCWD, r.Args[0], uint32(r.Args[1]), 0)
		}
	case unix.SYS_FCHMOD:
		err = a.chmod(r, int(int32(r.Args[0])), 0, uint32(r.Args[1]), 0)
	case unix.SYS_FCHMODAT:
		err = a.chmodAt(r, 0)
	case unix.SYS_FCHMODAT2:
		err = a.chmodAt(r, int(r.Args[3]))
	case unix.SYS_UTIMENSAT:
		err = a.utimes(r)
	default:
		err = unix.ENOSYS
	}
	var errno syscall.Errno
	if err != nil && !errors.As(err, &errno) {
		errno = unix.EPERM
	}
	return notify.Response{Error: -int32(errno)}
}

func (a *Arbiter) chmodAt(r *notify.Request, flags int) error {
	if r.Args[1] == 0 {
		return unix.EFAULT
	}
	return a.chmod(r, int(int32(r.Args[0])), r.Args[1], uint32(r.Args[2]), flags)
}

func (a *Arbiter) chmod(r *notify.Request, dir int, path uint64, mode uint32, flags int) error {
	const setID = unix.S_ISUID | unix.S_ISGID
	if mode&setID != 0 {
		return unix.EPERM
	}
	return a.change(r, dir, path, flags, func(at string) error { return unix.Chmod(at, mode&0o7777) })
}

func (a *Arbiter) utimes(r *notify.Request) error {
	if int32(r.Args[0]) == unix.AT_FDCWD && r.Args[1] == 0 {
		return unix.EFAULT
	}
	times := []unix.Timespec{{Nsec: unix.UTIME_NOW}, {Nsec: unix.UTIME_NOW}}
	if r.Args[2] != 0 {
		raw := make([]byte, 32)
		if err := r.Read(r.Args[2], raw); err != nil {
			return err
		}
		for i := range times {
			at := raw[16*i:]
			times[i] = unix.Timespec{Sec: int64(binary.NativeEndian.Uint64(at)), Nsec: int64(binary.NativeEndian.Uint64(at[8:]))}
		}
	}
	return a.change(r, int(int32(r.Args[0])), r.Args[1], int(r.Args[3]), func(at string) error {
		return unix.UtimesNanoAt(unix.AT_FDCWD, at, times, 0)
	})
}

// change calls fn with a path to what a request names, if the command may change it. The path leads to that very file,
// whatever happens to its names meanwhile.
func (a *Arbiter) change(r *notify.Request, dir int, path uint64, flags int, fn func(at string) error) error {
	fd, err := open(r, dir, path, flags)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if !r.Waits(a.listener) {
		return unix.EINTR // the caller is gone, and its number may be another process's
	}
	at := fmt.Sprintf("/proc/self/fd/%d", fd)
	name, err := os.Readlink(at)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if !a.below(name) || int(st.Uid) != os.Geteuid() {
		return unix.EPERM
	}
	return fn(at)
}

// below says whether the kernel's name of an open file is that of one in a directory of the sandbox, or in memory.
func (a *Arbiter) below(name string) bool {
	for _, dir := range a.writable {
		if name == dir || strings.HasPrefix(name, dir+"/") {
			return true
		}
	}
	return strings.HasPrefix(name, "/memfd:")
}

// open opens what a request names, as a place only.
func open(r *notify.Request, dir int, path uint64, flags int) (fd int, err error) {
	if flags&^(unix.AT_SYMLINK_NOFOLLOW|unix.AT_EMPTY_PATH) != 0 {
		return -1, unix.EINVAL
	}
	place := fmt.Sprintf("/proc/%d/cwd", r.PID)
	if dir != unix.AT_FDCWD {
		place = fmt.Sprintf("/proc/%d/fd/%d", r.PID, dir)
	}
	name := ""
	if path != 0 {
		if name, err = r.Path(path); err != nil {
			return -1, err
		}
		if name == "" && flags&unix.AT_EMPTY_PATH == 0 {
			return -1, unix.ENOENT
		}
	}
	base := unix.AT_FDCWD
	if !strings.HasPrefix(name, "/") {
		if base, err = unix.Open(place, unix.O_PATH|unix.O_CLOEXEC, 0); err != nil {
			return -1, unix.EBADF
		}
		if name == "" {
			return base, nil
		}
		defer unix.Close(base)
	}
	// those would be this process's
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS}
	if flags&unix.AT_SYMLINK_NOFOLLOW != 0 {
		how.Flags |= unix.O_NOFOLLOW
	}
	return unix.Openat2(base, name, &how)
}
