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
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/yamux"
	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/lima/internal/wire"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/command"
	"github.com/hutch-run/hutch/sdk/supervise"
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
	e := &wire.Exec{Argv: bytesOf(c.Argv), Env: bytesOf(env), Dir: []byte(cmp.Or(c.Dir, s.ready.Workspace))}
	if c.TTY != nil {
		e.TTY = &wire.Size{Rows: c.TTY.Rows, Cols: c.TTY.Cols}
	}
	std, err := openStreams(c)
	if err != nil {
		return nil, err
	}
	call, err := l.start(s.rec.ID, e, std[0], std[1], std[2])
	if err != nil {
		return nil, err
	}
	defer call.close()
	stop := command.Watch(ctx, call, c, call.resize)
	exit, err := call.wait()
	stop()
	if err != nil {
		return nil, s.lost(ctx, err)
	}
	call.drain(ctx)
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

// call is a command that runs in the guest. It implements [command.Running].
type call struct {
	link    *link
	control *yamux.Stream
	lines   *wire.Lines
	streams []*yamux.Stream // stdin, stdout and stderr in the guest
	in      io.ReadCloser   // nil for an empty input
	outs    [2]io.WriteCloser
	copied  sync.WaitGroup // of all output
	inErr   chan error     // one value when reading the input broke

	started  chan struct{} // closed when the command was executed, or never will be
	executed bool          // valid then

	mu sync.Mutex // of what is written to control
}

// drainTimeout bounds the wait for the reader of the last output of a command that was ended: it may have stopped
// reading.
const drainTimeout = 10 * time.Second

// endTimeout is how long the guest may take to report the end of a command that was killed.
const endTimeout = time.Minute

// start starts a command. What it reads comes from in, unless that is nil, and what it writes goes to out and errs, all
// of which are closed with the call.
func (l *link) start(id string, e *wire.Exec, in io.ReadCloser, out, errs io.WriteCloser) (*call, error) {
	c := &call{link: l, in: in, outs: [2]io.WriteCloser{out, errs}, inErr: make(chan error, 1), started: make(chan struct{})}
	streams, err := l.open(wire.Request{Op: wire.OpExec, ID: id, Exec: e}, 3)
	if err != nil {
		c.close()
		return nil, err
	}
	c.control, c.streams, c.lines = streams[0], streams[1:], wire.NewLines(streams[0])
	go c.copyIn()
	for i := range c.outs {
		c.copied.Go(func() { c.copyOut(1 + i) })
	}
	return c, nil
}

// copyIn passes the input on. The command sees only its true end; when reading it breaks, there is no end.
func (c *call) copyIn() {
	if c.in != nil {
		if err := wire.Copy(c.streams[0], c.in); err != nil {
			if !errors.Is(err, os.ErrClosed) {
				c.inErr <- err
			}
			return
		}
	}
	_ = c.streams[0].Close()
}

// copyOut passes one stream of output on, and says so to the command when nobody takes it any more.
func (c *call) copyOut(n int) {
	if wire.Copy(c.outs[n-1], c.streams[n]) != nil {
		_ = c.tell(wire.Control{Shut: n}) // a command that has ended needs none
		_, _ = io.Copy(io.Discard, c.streams[n])
	}
}

func (c *call) tell(v wire.Control) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return wire.Send(c.control, v)
}

// close lets go of everything. A command that has not ended is killed by that.
func (c *call) close() {
	if c.control != nil {
		_ = c.control.Close()
	}
	if c.in != nil {
		_ = c.in.Close()
	}
	for _, f := range c.outs {
		_ = f.Close()
	}
	for _, s := range c.streams {
		_ = s.SetDeadline(time.Unix(1, 0))
		_ = s.Close()
	}
}

// Started implements [command.Running].
func (c *call) Started() <-chan struct{} { return c.started }

// Executed implements [command.Running].
func (c *call) Executed() bool { return c.executed }

// Signal implements [command.Running].
func (c *call) Signal(s syscall.Signal) error { return c.tell(wire.Control{Signal: int(s)}) }

// SignalGroup implements [command.Running].
func (c *call) SignalGroup(s syscall.Signal) error {
	return c.tell(wire.Control{Signal: int(s), Group: true})
}

// Kill implements [command.Running]. A guest that does not answer is given up.
func (c *call) Kill() error {
	_ = c.control.SetReadDeadline(time.Now().Add(endTimeout))
	return c.tell(wire.Control{Kill: true}) // a connection that is lost has ended it
}

func (c *call) resize(w sdk.WindowSize) {
	_ = c.tell(wire.Control{Resize: &wire.Size{Rows: w.Rows, Cols: w.Cols}}) // a command that has ended needs none
}

// wait hears from the guest until the command has ended.
func (c *call) wait() (*wire.Exit, error) {
	begun := sync.OnceFunc(func() { close(c.started) })
	defer begun()
	for {
		var ev wire.Event
		if err := c.lines.Next(&ev); err != nil {
			return nil, c.link.lost(err)
		}
		if ev.Started {
			c.executed = true
			begun()
		}
		if ev.Exit != nil {
			return ev.Exit, nil
		}
	}
}

// drain waits until all output was passed on.
func (c *call) drain(ctx context.Context) {
	copied := make(chan struct{})
	go func() {
		c.copied.Wait()
		close(copied)
	}()
	select {
	case <-copied:
		return
	case <-ctx.Done():
	}
	timer := time.NewTimer(drainTimeout)
	defer timer.Stop()
	select {
	case <-copied:
	case <-timer.C:
	}
}

// exit says how the command ended, from what the guest's kernel said.
func (s *sandbox) exit(ctx context.Context, e *wire.Exit, wall time.Duration) (*sdk.Exit, error) {
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

	cmd     *exec.Cmd
	kill    context.CancelFunc
	said    *supervise.Tail
	session *yamux.Session
	done    chan struct{} // closed when ssh has ended

	opening sync.Mutex // held while streams are opened that belong together
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

// open opens a stream with its first line, and as many more that belong to it.
func (l *link) open(req wire.Request, more int) ([]*yamux.Stream, error) {
	line, err := wire.Line(req)
	if err != nil {
		return nil, sdk.Errorf(sdk.ReasonConfig, "ask the VM: %w", err)
	}
	streams := make([]*yamux.Stream, 1+more)
	l.opening.Lock()
	defer l.opening.Unlock()
	for i := range streams {
		if streams[i], err = l.session.OpenStream(); err != nil {
			return nil, l.lost(err) // and all streams with it
		}
	}
	if _, err := streams[0].Write(line); err != nil {
		return nil, l.lost(err)
	}
	return streams, nil
}

// ask asks for something that is no command. data, where there is any, writes what follows the request.
func (l *link) ask(ctx context.Context, req wire.Request, data func(io.Writer) error) (*wire.Reply, error) {
	streams, err := l.open(req, 0)
	if err != nil {
		return nil, err
	}
	s := streams[0]
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
				return nil, reply.Err
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
		return nil, reply.Err
	}
	return reply, nil
}

// destroy removes a sandbox from the guest.
func (l *link) destroy(ctx context.Context, id string) error {
	_, err := l.ask(ctx, wire.Request{Op: wire.OpDestroy, ID: id}, nil)
	return err
}
