package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/hutch-run/hutch/plugins/kubernetes/internal/wire"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/command"
	"github.com/hutch-run/hutch/sdk/guestpath"
	"github.com/hutch-run/hutch/sdk/remoteexec"
	"github.com/hutch-run/hutch/sdk/supervise/remote"
)

// Exec implements [sdk.Sandbox].
func (s *sandbox) Exec(ctx context.Context, c *sdk.Command) (*sdk.Exit, error) {
	began := time.Now()
	l, release, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	base := map[string]string{"HOME": wire.Home}
	if l.hello.Path != "" {
		base["PATH"] = l.hello.Path
	}
	env, err := command.Environment(c, base)
	if err != nil {
		return nil, err
	}
	if u := c.User; u != "" && u != fmt.Sprint(l.hello.UID) {
		return nil, sdk.Errorf(sdk.ReasonUnsupported, "commands in the pod run as %d and not as %q", l.hello.UID, u).
			WithFix("set user in the backend's block")
	}
	exit, err := remoteexec.Run(ctx, l.client, wire.Request{Op: wire.OpExec,
		Exec: remoteexec.Exec(c, env, guestpath.Workspace)}, c)
	if err != nil {
		if broke := (*remoteexec.LostError)(nil); errors.As(err, &broke) {
			return s.became(ctx, l, l.lost(err))
		}
		return nil, err
	}
	return remoteexec.Exit(ctx, exit, time.Since(began), "what stood above it in the pod was killed")
}

// Files are reached by a command of ours in the sandbox, with the view and the rights that any command there has.

// Put implements [sdk.Putter].
func (s *sandbox) Put(ctx context.Context, p string, format sdk.Format, r io.Reader) error {
	return s.files(ctx, []string{"put", string(format), p}, format, r, io.Discard)
}

// Get implements [sdk.Getter].
func (s *sandbox) Get(ctx context.Context, p string, format sdk.Format, w io.Writer) error {
	if format == sdk.FormatFile {
		w = sdk.SizeLine(ctx, w)
	}
	return s.files(ctx, []string{"get", string(format), p}, format, nil, w)
}

// Remove implements [sdk.Remover].
func (s *sandbox) Remove(ctx context.Context, p string, recursive bool) error {
	argv, err := remoteexec.RemoveArgs(p, recursive, []string{guestpath.Workspace, s.rec.Ready.Input, s.rec.Ready.Output,
		wire.Home, wire.State, "/tmp", "/var/tmp"})
	if err != nil {
		return err
	}
	return s.files(ctx, argv, sdk.FormatFile, nil, io.Discard)
}

// files runs one operation on files to its end.
func (s *sandbox) files(ctx context.Context, argv []string, format sdk.Format, r io.Reader, w io.Writer) error {
	l, release, err := s.use(ctx)
	if err != nil {
		return err
	}
	defer release()
	if format != sdk.FormatFile && format != sdk.FormatTar {
		return sdk.Errorf(sdk.ReasonUnsupported, "kubernetes does not speak %q", format)
	}
	request := func(e *remote.Exec) any { return wire.Request{Op: wire.OpExec, Files: true, Exec: e} }
	return l.lost(remoteexec.Files(ctx, l.client, request, argv, r, w))
}

// Dial implements [sdk.Dialer].
func (s *sandbox) Dial(ctx context.Context, port int) (net.Conn, error) {
	l, release, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	stream, err := l.client.Open(wire.Request{Op: wire.OpDial, Port: port})
	if err != nil {
		return nil, l.lost(&remoteexec.LostError{Err: err})
	}
	stop := context.AfterFunc(ctx, func() { _ = stream.SetDeadline(time.Unix(1, 0)) })
	lines, reply := remote.NewLines(stream), &remote.Reply{}
	err = lines.Next(reply)
	if !stop() {
		stream.Close()
		return nil, context.Cause(ctx)
	}
	if err != nil {
		stream.Close()
		return nil, l.lost(&remoteexec.LostError{Err: err})
	}
	if reply.Err != nil {
		stream.Close()
		return nil, reply.Err
	}
	return &conn{stream, lines.Rest()}, nil
}

// conn is a connection to a server of the sandbox.
type conn struct {
	*yamux.Stream
	r io.Reader
}

func (c *conn) Read(p []byte) (int, error) { return c.r.Read(p) }

// CloseWrite ends what the server reads.
func (c *conn) CloseWrite() error { return c.Stream.Close() }

// Close also ends a Read.
func (c *conn) Close() error {
	_ = c.SetReadDeadline(time.Unix(1, 0))
	return c.Stream.Close()
}
