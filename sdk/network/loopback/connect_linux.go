package loopback

import (
	"errors"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// settle is how long, in milliseconds, the kernel may take to say that nobody listens. It knows at once; then it only
// has to be scheduled.
const settle = 20

// Connect returns a descriptor of a connection to a TCP port of 127.0.0.1 or, where nothing listens there, of ::1, in
// the network namespace of the calling thread. It does not block: while the server's queue is full the connection is
// still being made, and a first read or write waits for it. The error is ECONNREFUSED where nothing listens.
func Connect(port int) (fd int, err error) {
	fd, err = connect(unix.AF_INET, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
	if err != nil {
		var err6 error
		if fd, err6 = connect(unix.AF_INET6, &unix.SockaddrInet6{Port: port, Addr: [16]byte{15: 1}}); err6 != nil {
			return -1, err
		}
	}
	return fd, nil
}

func connect(family int, to unix.Sockaddr) (int, error) {
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	if err = unix.Connect(fd, to); errors.Is(err, unix.EINPROGRESS) {
		if _, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, settle); err == nil ||
			errors.Is(err, unix.EINTR) {
			var errno int
			if errno, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR); err == nil && errno != 0 {
				err = unix.Errno(errno)
			}
		}
	}
	if err != nil {
		unix.Close(fd)
		return -1, os.NewSyscallError("connect", err)
	}
	return fd, nil
}

// Conn makes a connection of a descriptor that [Connect] returned, which it closes.
func Conn(fd int) (net.Conn, error) {
	f := os.NewFile(uintptr(fd), "connection")
	defer f.Close()
	return net.FileConn(f)
}
