package main

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"sync/atomic"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/hutch-run/hutch/plugins/lima/internal/wire"
	"github.com/hutch-run/hutch/sdk"
)

// link is a connection to our program in a guest. Its methods are safe for concurrent use.
type link struct {
	name     string // of the VM
	hello    *wire.Hello
	exchange *exchangeOf // nil when the VM shares nothing with the host

	cmd     *exec.Cmd
	kill    context.CancelFunc
	said    *tail
	session *yamux.Session
	done    chan struct{} // closed when ssh has ended

	calls atomic.Uint64
}

func (l *link) alive() bool { return !l.session.IsClosed() }

// close ends the connection, and with it its commands, and waits for ssh.
func (l *link) close() {
	_ = l.session.Close()
	<-l.done
}

// lost is what became of a call when the connection broke.
func (l *link) lost(err error) error {
	e := sdk.Errorf(sdk.ReasonUnavailable, "the connection to the VM %s broke: %w", l.name, err).WithFix("see whether it still runs: limactl list %s", l.name)
	e.Detail, e.Retryable = l.said.String(), true
	return e
}

// open opens a stream with its first line.
func (l *link) open(req wire.Request) (*yamux.Stream, error) {
	s, err := l.session.OpenStream()
	if err != nil {
		return nil, l.lost(err)
	}
	if err := wire.Send(s, req); err != nil {
		s.Close()
		return nil, l.lost(err)
	}
	return s, nil
}

// ask asks for something that is no command. data, where there is any, writes what follows the request.
func (l *link) ask(ctx context.Context, req wire.Request, data func(io.Writer) error) (*wire.Reply, error) {
	s, err := l.open(req)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	defer context.AfterFunc(ctx, func() { _ = s.SetDeadline(time.Unix(1, 0)) })()
	if data != nil {
		if err := data(s); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return nil, cause
			}
			// A guest that had no use for the rest says why.
			reply := &wire.Reply{}
			if errors.Is(err, yamux.ErrStreamClosed) && wire.NewLines(s).Next(reply) == nil && reply.Err != nil {
				return nil, fromGuest(reply.Err)
			}
			return nil, err
		}
	}
	if err := s.Close(); err != nil {
		return nil, l.lost(err)
	}
	reply := &wire.Reply{}
	if err := wire.NewLines(s).Next(reply); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, l.lost(err)
	}
	if reply.Err != nil {
		return nil, fromGuest(reply.Err)
	}
	return reply, nil
}

// destroy removes a sandbox from the guest.
func (l *link) destroy(ctx context.Context, id string) error {
	_, err := l.ask(ctx, wire.Request{Op: wire.OpDestroy, ID: id}, nil)
	return err
}

// fromGuest makes an error of this side of one of the guest's.
func fromGuest(e *wire.Error) error {
	return &sdk.Error{Reason: sdk.Reason(e.Reason), Summary: e.Summary, Limit: sdk.Limit(e.Limit)}
}
