//go:build unix

package supervise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrHostGone is the cause of a Lifeline's end.
var ErrHostGone = errors.New("the host is gone")

// Lifeline returns a context that ends with cause ErrHostGone when the pipe on descriptor fd reports end of file: the
// host, which holds the other end and never writes to it, has died or let go. The descriptor is no longer inherited by
// children. Cancelling the context lets go of the descriptor.
//
// From now on writing to a closed pipe is an error for this process and does not kill it: a log line to a host that is
// gone must not keep it from cleaning up. The signal is caught and not ignored, because children would inherit that it
// is ignored, and `yes | head` would run for ever.
func Lifeline(parent context.Context, fd uintptr) (context.Context, context.CancelFunc, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(fd), &st); err != nil {
		return nil, nil, fmt.Errorf("lifeline on descriptor %d: %w", fd, err)
	}
	if t := st.Mode & unix.S_IFMT; t != unix.S_IFIFO && t != unix.S_IFSOCK {
		return nil, nil, fmt.Errorf("lifeline on descriptor %d: neither a pipe nor a socket", fd)
	}
	unix.CloseOnExec(int(fd))
	if err := unix.SetNonblock(int(fd), true); err != nil {
		return nil, nil, fmt.Errorf("lifeline on descriptor %d: %w", fd, err)
	}
	catchSIGPIPE()
	f := os.NewFile(fd, "lifeline") // non-blocking, so that reading it takes no thread and Close ends it
	ctx, cancel := context.WithCancelCause(parent)
	go func() {
		// A host that writes all the same is alive.
		_, err := io.Copy(io.Discard, f)
		if !errors.Is(err, os.ErrClosed) {
			cancel(ErrHostGone)
		}
	}()
	stop := context.AfterFunc(ctx, func() { f.Close() })
	return ctx, func() { cancel(context.Canceled); stop(); f.Close() }, nil
}

var catchSIGPIPE = sync.OnceFunc(func() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGPIPE)
	go func() {
		for range c {
		}
	}()
})
