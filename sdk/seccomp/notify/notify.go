//go:build linux

// Package notify answers system calls that a filter leaves to the process that has the filter's listener. The kernel
// holds the caller until the answer (seccomp_unotify(2)).
package notify

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Load restricts this thread, and what it starts, by a filter, an array of struct sock_filter, and returns its
// listener. Only a signal that kills interrupts a call that was passed on, or programs would see a spurious EINTR.
func Load(program []byte) (fd int, err error) {
	const size = 8 // of an instruction
	prog := unix.SockFprog{Len: uint16(len(program) / size), Filter: (*unix.SockFilter)(unsafe.Pointer(&program[0]))}
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	r, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return -1, fmt.Errorf("load the system call filter: %w", errno)
	}
	return int(r), nil
}

// Send restricts this thread, as [Load] does, by the filter that the file has, and sends the listener over a unix
// socket. It closes both. The thread must be locked, and the process have no privileges to gain.
func Send(filter, socket int) error {
	file := os.NewFile(uintptr(filter), "filter")
	program, err := io.ReadAll(io.NewSectionReader(file, 0, 1<<16))
	file.Close()
	if err != nil {
		return err
	}
	listener, err := Load(program)
	if err != nil {
		return err
	}
	err = os.NewSyscallError("sendmsg", unix.Sendmsg(socket, []byte{0}, unix.UnixRights(listener), nil, 0))
	unix.Close(listener)
	unix.Close(socket)
	return err
}

// Receive returns the listener that came over a unix socket with the control message oob.
func Receive(oob []byte) (*os.File, error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(messages) != 1 {
		return nil, fmt.Errorf("no listener came: %w", err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, fmt.Errorf("no listener came: %w", err)
	}
	unix.CloseOnExec(fds[0])
	if err := unix.SetNonblock(fds[0], true); err != nil { // or package os does not wait for it with the others
		unix.Close(fds[0])
		return nil, err
	}
	return os.NewFile(uintptr(fds[0]), "seccomp listener"), nil
}

// Request is a call that waits for its answer: struct seccomp_notif.
type Request struct {
	ID    uint64
	PID   uint32 // of the thread
	Flags uint32
	Nr    int32
	Arch  uint32
	IP    uint64
	Args  [6]uint64
}

// Response is struct seccomp_notif_resp.
type Response struct {
	ID    uint64
	Value int64
	Error int32 // a negative errno
	Flags uint32
}

func ioctl(fd uintptr, op uint, arg unsafe.Pointer) error {
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, uintptr(op), uintptr(arg))
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return errno
		}
	}
}

// Serve answers, one call after the other, until nobody is left who could ask, or listener is closed.
func Serve(listener *os.File, answer func(*Request) Response) {
	conn, err := listener.SyscallConn()
	if err != nil {
		return
	}
	for {
		var r Request
		ended := false
		err := conn.Read(func(fd uintptr) bool {
			ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			for ready[0].Revents&(unix.POLLIN|unix.POLLHUP) == 0 {
				n, err := unix.Poll(ready, 0) // POLLERR is of a poll that a signal interrupted
				if n == 0 && err == nil {
					return false
				}
			}
			ended = ready[0].Revents&unix.POLLIN == 0 // nobody has the filter any more
			r = Request{}
			return ended || ioctl(fd, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&r)) == nil
		})
		if err != nil || ended {
			return
		}
		a := answer(&r)
		a.ID = r.ID
		// An error means that the caller was killed.
		_ = conn.Control(func(fd uintptr) { _ = ioctl(fd, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&a)) })
	}
}

// Waits reports whether the caller still waits for its answer: else its number may be another process's.
func (r *Request) Waits(listener *os.File) bool {
	conn, err := listener.SyscallConn()
	if err != nil {
		return false
	}
	cerr := conn.Control(func(l uintptr) { err = ioctl(l, unix.SECCOMP_IOCTL_NOTIF_ID_VALID, unsafe.Pointer(&r.ID)) })
	return cerr == nil && err == nil
}

// Read fills b from the caller's memory.
func (r *Request) Read(at uint64, b []byte) error {
	local := []unix.Iovec{{Base: unsafe.SliceData(b)}}
	local[0].SetLen(len(b))
	n, err := unix.ProcessVMReadv(int(r.PID), local, []unix.RemoteIovec{{Base: uintptr(at), Len: len(b)}}, 0)
	if err == nil && n < len(b) {
		err = unix.EFAULT
	}
	return err
}

// Path reads a path from the caller's memory, page by page: what follows its end may not be mapped.
func (r *Request) Path(at uint64) (string, error) {
	var out []byte
	page := uint64(os.Getpagesize())
	for len(out) < unix.PathMax {
		b := make([]byte, page-at%page)
		if err := r.Read(at, b); err != nil {
			return "", err
		}
		if i := bytes.IndexByte(b, 0); i >= 0 {
			return string(append(out, b[:i]...)), nil
		}
		out, at = append(out, b...), at+uint64(len(b))
	}
	return "", unix.ENAMETOOLONG
}
