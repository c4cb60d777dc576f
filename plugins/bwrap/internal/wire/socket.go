package wire

import (
	"fmt"
	"sync"

	"github.com/hutch-run/hutch/sdk/supervise"
	"github.com/hutch-run/hutch/sdk/supervise/wire"
)

// maxMessage bounds one message; the kernel's default socket buffer is larger.
const maxMessage = 192 << 10

// Send sends one message, a *Request or a *Reply, with descriptors.
func Send(s *supervise.Socket, m any, fds ...int) error {
	data := wire.Marshal(m)
	if len(data) > maxMessage || len(fds) > supervise.MaxFDs {
		return fmt.Errorf("a message of %d bytes and %d descriptors is too large", len(data), len(fds))
	}
	return s.Send(data, fds...)
}

// buffers are used again: making one for each message would cost more than the message.
var buffers = sync.Pool{New: func() any { return new([maxMessage + 1]byte) }}

// Recv receives one message into m, which must be zero, and returns the descriptors that came with it, which are closed
// on exec. It returns [io.EOF] when the other end is gone.
func Recv(s *supervise.Socket, m any) (fds []int, err error) {
	buf := buffers.Get().(*[maxMessage + 1]byte)
	defer buffers.Put(buf)
	msg, err := s.Recv(buf[:])
	if err == nil {
		if err = wire.Unmarshal(msg.Data, m); err != nil {
			msg.Close()
		}
	}
	return msg.FDs, err
}
