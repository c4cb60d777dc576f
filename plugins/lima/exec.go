package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/hashicorp/yamux"
	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/lima/internal/wire"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/command"
	"github.com/hutch-run/hutch/sdk/supervise"
	"github.com/hutch-run/hutch/sdk/supervise/remote"
)

// Exec implements [sdk.Sandbox].
func (s *sandbox) Exec(ctx context.Context, c *sdk.Command) (*sdk.Exit, error) {
	began := time.Now() // before the VM is reached, as the command's timeout begins: two clocks would contradict each other
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
	e := &remote.Exec{Argv: bytesOf(c.Argv), Env: bytesOf(env), Dir: []byte(cmp.Or(c.Dir, s.ready.Workspace))}
	if c.TTY != nil {
		e.TTY = &remote.Size{Rows: c.TTY.Rows, Cols: c.TTY.Cols}
	}
	std, err := openStreams(c)
	if err != nil {
		return nil, err
	}
	call, err := l.client.Start(wire.Request{Op: wire.OpExec, ID: s.rec.ID, Exec: e}, std[0], std[1], std[2])
	if err != nil {
		return nil, l.lost(err)
	}
	defer call.Close()
	stop := command.Watch(ctx, call, c, func(w sdk.WindowSize) { call.Resize(w.Rows, w.Cols) })
	exit, err := call.Wait()
	stop()
	if err != nil {
		return nil, s.lost(ctx, l.lost(err))
	}
	call.Drain(ctx)
	return s.exit(ctx, exit, time.Since(began))
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
	return e.WithFix("the next command starts it again; what it said last is in %s", filepath.Join(s.machine.home, s.machine.name, "serial*.log"))
}

// bytesOf is a list as JSON can carry it, whose strings hold UTF-8 only.
func bytesOf(list []string) [][]byte {
	out := make([][]byte, len(list))
	for i, s := range list {
		out[i] = []byte(s)
	}
	return out
}

// openStreams opens the command's streams once more, so that closing them wakes up who reads or writes. An output of
// which nobody holds the other end is closed.
func openStreams(c *sdk.Command) (std [3]*os.File, err error) {
	for i, f := range []*os.File{c.Stdin, c.Stdout, c.Stderr} {
		flag := os.O_WRONLY | unix.O_NONBLOCK
		if i == 0 {
			flag = os.O_RDONLY | unix.O_NONBLOCK
		}
		std[i], err = os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), flag, 0)
		if errors.Is(err, unix.ENXIO) {
			if std[i], err = os.Open(os.DevNull); err == nil {
				err = std[i].Close()
			}
		}
		if err != nil {
			for _, f := range std[:i] {
				f.Close()
			}
			return std, sdk.Errorf(sdk.ReasonInternal, "open the command's streams: %w", err)
		}
	}
	return std, nil
}

// exit says how the command ended, from what the guest's kernel said.
func (s *sandbox) exit(ctx context.Context, e *remote.Exit, wall time.Duration) (*sdk.Exit, error) {
	stopped := sdk.CauseOf(ctx)
	switch {
	case e.Err != nil && stopped == "":
		return nil, e.Err
	case e.Err != nil:
		return &sdk.Exit{Cause: stopped, Code: 137, Signal: "SIGKILL", Evidence: "stopped by hutch before it ran; " + e.Err.Summary}, nil
	case e.NotStarted:
		return &sdk.Exit{Cause: sdk.CauseExited, NotStarted: true, Code: e.Code, Evidence: "execve: " + e.Why}, nil
	}
	exit := command.Ended(syscall.WaitStatus(e.Status))
	if e.Killed {
		exit = command.Ended(syscall.WaitStatus(unix.SIGKILL))
		exit.Evidence = "its namespace in the VM was killed"
	}
	exit.Usage = sdk.Usage{Wall: wall, User: e.User, Sys: e.Sys, PeakMemory: e.MaxRSS, PIDs: int64(e.PIDsPeak)}
	if e.MemoryPeak > 0 {
		exit.Usage.PeakMemory = int64(e.MemoryPeak)
	}
	command.Blame(ctx, exit, command.Met{OOMKills: e.OOMKills, PIDsHits: e.PIDsHits})
	return exit, nil
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

// lost is what became of a call when the connection broke; an error with a reason stays as it is.
func (l *link) lost(err error) error {
	if e := (*sdk.Error)(nil); errors.As(err, &e) {
		return err
	}
	e := sdk.Errorf(sdk.ReasonUnavailable, "the connection to the VM %s broke: %w", l.name, err).WithFix("see whether it still runs: limactl list %s", l.name)
	e.Detail, e.Retryable = l.said.String(), true
	return e
}

// ask asks for something that is no command. data, where there is any, writes what follows the request.
func (l *link) ask(ctx context.Context, req wire.Request, data func(io.Writer) error) (*wire.Reply, error) {
	s, err := l.client.Open(req)
	if err != nil {
		return nil, l.lost(err)
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
			if errors.Is(err, yamux.ErrStreamClosed) && remote.NewLines(s).Next(reply) == nil && reply.Err != nil {
				return nil, reply.Err
			}
			return nil, err
		}
	}
	if err := s.Close(); err != nil {
		return nil, l.lost(err)
	}
	reply := &wire.Reply{}
	if err := remote.NewLines(s).Next(reply); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, l.lost(err)
	}
	if reply.Err != nil {
		return nil, reply.Err
	}
	return reply, nil
}

// destroy removes a sandbox from the guest.
func (l *link) destroy(ctx context.Context, id string) error {
	_, err := l.ask(ctx, wire.Request{Op: wire.OpDestroy, ID: id}, nil)
	return err
}
