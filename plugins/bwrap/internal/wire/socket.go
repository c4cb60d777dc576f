package wire

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sys/unix"
)

// maxMessage bounds one message; the kernel's default socket buffer is larger.
const maxMessage = 192 << 10

// maxFDs bounds the descriptors of one message; the kernel's own bound is 253.
const maxFDs = 128

// Send writes one message, a *Request or a *Reply, to the SOCK_SEQPACKET socket, with descriptors.
func Send(socket int, m message, fds ...int) error {
	data := marshal(m)
	if len(data) > maxMessage || len(fds) > maxFDs {
		return fmt.Errorf("a message of %d bytes and %d descriptors is too large", len(data), len(fds))
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	for {
		err := unix.Sendmsg(socket, data, rights, nil, unix.MSG_NOSIGNAL)
		if err != unix.EINTR {
			return err
		}
	}
}

// room is what one message is read into. Rooms are used again: making one for each
// message would cost more than the message.
type room struct {
	data [maxMessage]byte
	oob  [512 + 4*maxFDs]byte // more than the kernel's header
}

var rooms = sync.Pool{New: func() any { return new(room) }}

// Recv reads one message into m and returns the descriptors that came with it,
// which are closed on exec. It returns [io.EOF] when the other end is gone.
func Recv(socket int, m message) (fds []int, err error) {
	room := rooms.Get().(*room)
	defer rooms.Put(room)
	buf, oob := room.data[:], room.oob[:]
	var n, oobn, flags int
	for {
		n, oobn, flags, _, err = unix.Recvmsg(socket, buf, oob, unix.MSG_CMSG_CLOEXEC)
		if err != unix.EINTR {
			break
		}
	}
	if err == unix.ECONNRESET || (err == nil && n == 0) {
		return nil, io.EOF
	}
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return nil, err
	}
	for i := range messages {
		rights, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue // not descriptors
		}
		fds = append(fds, rights...)
	}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		err = errors.New("a message between plugin and holder was cut off")
	} else {
		err = unmarshal(buf[:n], m)
	}
	if err != nil {
		for _, fd := range fds {
			unix.Close(fd)
		}
		return nil, err
	}
	return fds, nil
}
