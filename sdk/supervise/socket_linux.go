package supervise

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNoFiles says that a message came without some of its descriptors, because this process has too many open.
var ErrNoFiles = errors.New("too many open files to take the descriptors of a message")

// MaxFDs bounds the descriptors of one message.
const MaxFDs = 128

// Socket carries messages with descriptors. One goroutine may receive while any number send.
type Socket struct {
	file *os.File
	raw  syscall.RawConn
}

// NewSocket takes over fd, a SOCK_SEQPACKET socket.
func NewSocket(fd int) (*Socket, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "socket")
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, err
	}
	return &Socket{file, raw}, nil
}

// Close closes the socket and ends those that wait for it.
func (s *Socket) Close() error { return s.file.Close() }

// SetDeadline ends what is waited for at that time, with os.ErrDeadlineExceeded.
func (s *Socket) SetDeadline(t time.Time) error { return s.file.SetDeadline(t) }

// SetWriteDeadline ends what is sent at that time, likewise.
func (s *Socket) SetWriteDeadline(t time.Time) error { return s.file.SetWriteDeadline(t) }

// Control calls fn with the socket's descriptor.
func (s *Socket) Control(fn func(fd int)) error {
	return s.raw.Control(func(fd uintptr) { fn(int(fd)) })
}

// Send sends one message. It waits while the other end does not read.
func (s *Socket) Send(data []byte, fds ...int) error {
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	var err error
	if e := s.raw.Write(func(fd uintptr) bool {
		for {
			err = unix.Sendmsg(int(fd), data, rights, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
			if err != unix.EINTR {
				return err != unix.EAGAIN
			}
		}
	}); e != nil {
		return e
	}
	return err
}

// Message is what [Socket.Recv] received.
type Message struct {
	Data []byte // part of the buffer that Recv was given
	FDs  []int  // closed on exec; the receiver's to close
	PID  int    // of the sender, where the socket has SO_PASSCRED set
}

// Close closes the descriptors.
func (m *Message) Close() {
	for _, fd := range m.FDs {
		unix.Close(fd)
	}
	m.FDs = nil
}

// Recv waits for a message and reads it into buf, which should have room for one
// byte more than a message may have. The end of the connection is io.EOF. With
// [ErrNoFiles] there is a message, but no descriptors.
func (s *Socket) Recv(buf []byte) (m Message, err error) { return s.recv(buf, true) }

// TryRecv is like Recv and says EAGAIN when there is no message now.
func (s *Socket) TryRecv(buf []byte) (m Message, err error) { return s.recv(buf, false) }

func (s *Socket) recv(buf []byte, wait bool) (m Message, err error) {
	var oob [64 + 4*MaxFDs]byte // a message's credentials and descriptors
	var n, oobn, flags int
	if e := s.raw.Read(func(fd uintptr) bool {
		for {
			n, oobn, flags, _, err = unix.Recvmsg(int(fd), buf, oob[:], unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
			if err != unix.EINTR {
				return err != unix.EAGAIN || !wait
			}
		}
	}); e != nil {
		return m, e
	}
	if err == unix.ECONNRESET {
		err = io.EOF
	}
	if err != nil {
		return m, err
	}
	controls, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return m, err
	}
	for i := range controls {
		if fds, err := unix.ParseUnixRights(&controls[i]); err == nil {
			m.FDs = append(m.FDs, fds...)
		} else if cred, err := unix.ParseUnixCredentials(&controls[i]); err == nil {
			m.PID = int(cred.Pid)
		}
	}
	m.Data = buf[:n]
	switch {
	case n == 0 && len(m.FDs) == 0:
		return m, io.EOF
	case flags&unix.MSG_TRUNC != 0:
		m.Close()
		return m, errors.New("a message is too long")
	case flags&unix.MSG_CTRUNC != 0:
		m.Close()
		return m, ErrNoFiles
	}
	return m, nil
}

// Accept waits for a connection to a listening socket. What it returns is closed on
// exec.
func (s *Socket) Accept() (fd int, err error) {
	if e := s.raw.Read(func(l uintptr) bool {
		for {
			fd, _, err = unix.Accept4(int(l), unix.SOCK_CLOEXEC)
			if err != unix.EINTR {
				return err != unix.EAGAIN
			}
		}
	}); e != nil {
		return -1, e
	}
	return fd, err
}

// Bind makes a SOCK_SEQPACKET socket at path, which may have any length, for this user alone. It replaces a socket that
// is there. Nobody listens on it yet.
func Bind(path string) (*os.File, error) {
	dir, err := os.OpenFile(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		if err = unix.Bind(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(),
			filepath.Base(path))}); err == nil {
			err = os.Chmod(path, 0o600)
		}
		if err != nil {
			unix.Close(fd)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("make the socket %s: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// Connect connects to the SOCK_SEQPACKET socket at path, which may have any length. What stands there may be a symbolic
// link or anything else, if somebody should have come to write to the directory: that is refused. While too many others
// wait to be accepted, it waits as long as patience and then says EAGAIN.
func Connect(path string, patience time.Duration) (fd int, err error) {
	at, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(at)
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return -1, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return -1, fmt.Errorf("%s is not a socket", path)
	}
	fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	wait := unix.NsecToTimeval(int64(patience))
	err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &wait)
	for err == nil {
		if err = unix.Connect(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d", at)}); err == nil {
			return fd, nil
		}
		if err == unix.EINTR {
			err = nil
		}
	}
	unix.Close(fd)
	return -1, &os.PathError{Op: "connect", Path: path, Err: err}
}
