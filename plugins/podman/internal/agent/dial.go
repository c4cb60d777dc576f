package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/podman/internal/agent/wire"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/supervise"
)

// Dial connects to the agent that listens on the socket at path, see [Listen]. A
// path that is no socket is refused, and so is a listener that is not the process
// wantPID, the container's init as this host numbers it. ctx bounds the whole of it,
// the agent's first answer included.
//
// An agent that is just being started is waited for. When the process wantPID is
// gone, so that nobody will ever answer, the error is os.ErrProcessDone.
func Dial(ctx context.Context, path string, wantPID int) (*Conn, error) {
	c, err := dial(ctx, path, wantPID)
	if err != nil {
		return nil, fmt.Errorf("connect to the sandbox's agent: %w", err)
	}
	return c, nil
}

func dial(ctx context.Context, path string, wantPID int) (*Conn, error) {
	fd, err := connect(ctx, path, wantPID)
	if err != nil {
		return nil, err
	}
	socket, err := supervise.NewSocket(fd)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = socket.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := greeting(ctx, socket, wantPID); err != nil {
		socket.Close()
		return nil, err
	}
	if !stop() { // the deadline is set, or is about to be
		socket.Close()
		return nil, context.Cause(ctx)
	}
	c := &Conn{socket: socket, processes: map[*Process]bool{}, questions: map[uint64]chan<- answer{},
		done: make(chan struct{})}
	go c.receive()
	return c, nil
}

// connect connects to the socket at path, on which nobody may listen yet.
func connect(ctx context.Context, path string, wantPID int) (fd int, err error) {
	for {
		fd, err = supervise.Connect(path, 100*time.Millisecond)
		switch {
		case err == nil, !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.ECONNREFUSED):
			return fd, err
		case isGone(wantPID):
			return -1, os.ErrProcessDone
		case ctx.Err() != nil:
			return -1, fmt.Errorf("%w, until %w", err, context.Cause(ctx))
		case errors.Is(err, unix.ECONNREFUSED):
			time.Sleep(500 * time.Microsecond) // it does not listen yet, and nothing reports when it does
		}
	}
}

func isGone(pid int) bool { return errors.Is(unix.Kill(pid, 0), unix.ESRCH) }

// greeting waits until the right agent has greeted. The socket may be held open by
// others when the container is gone, so that is looked for too.
func greeting(ctx context.Context, socket *supervise.Socket, wantPID int) error {
	stop := make(chan struct{})
	defer close(stop)
	gone := make(chan struct{})
	go func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				if isGone(wantPID) {
					close(gone)
					_ = socket.SetDeadline(time.Unix(1, 0))
					return
				}
			}
		}
	}()
	m, err := socket.Recv(make([]byte, wire.ReplySize+1))
	if err == nil {
		defer m.Close()
		return greeted(m, socket, wantPID)
	}
	select {
	case <-gone:
		return os.ErrProcessDone
	default:
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, io.EOF) {
		return errors.New("it ended without a greeting")
	}
	return err
}

// greeted says whether it is the right agent that has greeted.
func greeted(m supervise.Message, socket *supervise.Socket, wantPID int) error {
	r, err := wire.ParseReply(m.Data, len(m.FDs))
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	if e := socket.Control(func(fd int) {
		peer, err = unix.GetsockoptUcred(fd, unix.SOL_SOCKET,
			unix.SO_PEERCRED)
	}); e != nil {
		return e
	}
	switch {
	case err != nil:
		return err
	case int(peer.Pid) != wantPID:
		return sdk.Errorf(sdk.ReasonDenied, "process %d listens there, and not the container's first process, %d", peer.Pid,
			wantPID)
	case r.Op != wire.Hello:
		return fmt.Errorf("it begins with reply %d instead of a greeting", r.Op)
	case r.Value != wire.Version:
		return sdk.Errorf(sdk.ReasonUnsupported, "it speaks version %d of the protocol, and this plugin version %d", r.Value,
			wire.Version).
			WithFix("the sandbox was made by another version of hutch: use that one, or recreate the sandbox with `hutch reset`")
	}
	return nil
}

// gone is the error of everything that needs a connection that is over.
func gone(err error) error {
	if err == nil || errors.Is(err, os.ErrClosed) || errors.Is(err, syscall.EPIPE) {
		return sdk.Errorf(sdk.ReasonUnavailable, "the connection to the sandbox's agent is over")
	}
	return sdk.Errorf(sdk.ReasonUnavailable, "the connection to the sandbox's agent is over: %w", err)
}
