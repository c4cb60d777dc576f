package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/hutch-run/hutch/plugins/lima/internal/wire"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/command"
	"github.com/hutch-run/hutch/sdk/remoteexec"
	"github.com/hutch-run/hutch/sdk/supervise"
	"github.com/hutch-run/hutch/sdk/supervise/remote"
)

// Exec implements [sdk.Sandbox].
func (s *sandbox) Exec(ctx context.Context, c *sdk.Command) (*sdk.Exit, error) {
	// before the VM is reached, as the command's timeout begins: two clocks would contradict each other
	began := time.Now()
	l, release, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	env, err := command.Environment(c, map[string]string{"HOME": l.hello.Home})
	if err != nil {
		return nil, err
	}
	if u := c.User; u != "" && u != l.hello.User && u != fmt.Sprint(l.hello.UID) {
		return nil, sdk.Errorf(sdk.ReasonUnsupported, "commands in a VM run as %s and not as %q", l.hello.User, u)
	}
	exit, err := remoteexec.Run(ctx, l.client, wire.Request{Op: wire.OpExec, ID: s.rec.ID,
		Exec: remoteexec.Exec(c, env, s.ready.Workspace)}, c)
	if err != nil {
		return nil, s.lost(ctx, l.lost(err))
	}
	return remoteexec.Exit(ctx, exit, time.Since(began), "its namespace in the VM was killed")
}

// lost says what became of the VM when a command's connection broke.
func (s *sandbox) lost(ctx context.Context, err error) error {
	look, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	text := s.machine.died(look)
	if text == "" {
		return err
	}
	e := sdk.Errorf(sdk.ReasonUnavailable, "%s", text)
	e.Err, e.Detail, e.Retryable = err, err.Error(), true
	return e.WithFix("the next command starts it again; what it said last is in %s",
		filepath.Join(s.machine.home, s.machine.name, "serial*.log"))
}

// link is a connection to our program in a guest. Its methods are safe for concurrent use.
type link struct {
	name     string // of the VM
	hello    *wire.Hello
	exchange *exchangeOf // nil when the VM shares nothing with the host

	cmd    *exec.Cmd
	kill   context.CancelFunc
	said   *supervise.Tail
	client *remote.Client
	done   chan struct{} // closed when ssh has ended
}

func (l *link) alive() bool { return l.client.Alive() }

// close ends the connection, and with it its commands, and waits for ssh.
func (l *link) close() {
	_ = l.client.Close()
	<-l.done
}

// lost says which connection broke when err is about that; any other error stays as it is.
func (l *link) lost(err error) error {
	broke := (*remoteexec.LostError)(nil)
	if !errors.As(err, &broke) {
		return err
	}
	e := sdk.Errorf(sdk.ReasonUnavailable, "the connection to the VM %s broke: %w", l.name,
		broke.Err).WithFix("see whether it still runs: limactl list %s", l.name)
	e.Detail, e.Retryable = l.said.String(), true
	return e
}

// ask asks for something that is no command. data, where there is any, writes what follows the request.
func (l *link) ask(ctx context.Context, req wire.Request, data func(io.Writer) error) (*remote.Reply, error) {
	reply, err := remoteexec.Ask(ctx, l.client, req, data)
	return reply, l.lost(err)
}

// destroy removes a sandbox from the guest.
func (l *link) destroy(ctx context.Context, id string) error {
	_, err := l.ask(ctx, wire.Request{Op: wire.OpDestroy, ID: id}, nil)
	return err
}
