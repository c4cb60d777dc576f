package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
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
	if c.Dir != "" && !path.IsAbs(c.Dir) {
		return nil, sdk.Errorf(sdk.ReasonConfig, "the directory %q to work in is not absolute", c.Dir)
	}
	if u := c.User; u != "" && u != l.hello.User && u != fmt.Sprint(l.hello.UID) {
		return nil, sdk.Errorf(sdk.ReasonUnsupported, "commands in a VM run as %s and not as %q", l.hello.User, u)
	}
	dir := c.Dir
	if dir == "" {
		dir = s.ready.Workspace
	}
	e := &wire.Exec{Dir: []byte(dir), Env: environment(c, l.hello.Home)}
	for _, a := range c.Argv {
		e.Argv = append(e.Argv, []byte(a))
	}
	if c.TTY != nil {
		e.TTY = &wire.Size{Rows: c.TTY.Rows, Cols: c.TTY.Cols}
	}
	in, out, errs, err := openStreams(c)
	if err != nil {
		return nil, err
	}
	call, err := l.start(s.rec.ID, e, in, out, errs)
	if err != nil {
		return nil, err
	}
	defer call.close()
	exit, err := call.watch(ctx, c)
	if err != nil {
		return nil, s.lost(ctx, err)
	}
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

// environment is the whole environment of a command: its own, and what every program needs.
func environment(c *sdk.Command, home string) (out [][]byte) {
	env := map[string]string{"HOME": home, "PATH": supervise.DefaultPath, "LANG": "C.UTF-8"}
	if c.TTY != nil {
		env["TERM"] = "xterm"
	}
	maps.Copy(env, c.Env)
	for _, name := range slices.Sorted(maps.Keys(env)) {
		out = append(out, []byte(name+"="+env[name]))
	}
	return out
}

// openStreams opens the command's streams once more, so that closing them wakes up who reads or writes. A stream of
// which nobody holds the other end is nil.
func openStreams(c *sdk.Command) (in, out, errs *os.File, err error) {
	again := func(f *os.File, flag int) *os.File {
		g, e := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), flag|unix.O_NONBLOCK, 0)
		if e != nil && !errors.Is(e, unix.ENXIO) {
			err = errors.Join(err, e)
		}
		return g
	}
	in, out, errs = again(c.Stdin, os.O_RDONLY), again(c.Stdout, os.O_WRONLY), again(c.Stderr, os.O_WRONLY)
	if err != nil {
		for _, f := range []*os.File{in, out, errs} {
			if f != nil {
				f.Close()
			}
		}
		return nil, nil, nil, sdk.Errorf(sdk.ReasonInternal, "open the command's streams: %w", err)
	}
	return in, out, errs, nil
}

// call is a command that runs in the guest.
type call struct {
	link    *link
	control *yamux.Stream
	lines   *wire.Lines
	streams [3]*yamux.Stream
	in      io.ReadCloser
	outs    [2]io.WriteCloser
	copied  sync.WaitGroup // of all output
	inErr   chan error     // one value when reading the input broke

	mu sync.Mutex // of what is written to control
}

// drainTimeout bounds the wait for the reader of the last output of a command that was ended: it may have stopped
// reading.
const drainTimeout = 10 * time.Second

// endTimeout is how long the guest may take to tell the end of a command that was killed, beyond its grace.
const endTimeout = time.Minute

// start starts a command. What it reads comes from in, and what it writes goes to out and errs, all of which are closed
// with the call; those that are nil are empty, or go nowhere.
func (l *link) start(id string, e *wire.Exec, in io.ReadCloser, out, errs io.WriteCloser) (c *call, err error) {
	n := l.calls.Add(1)
	c = &call{link: l, in: in, outs: [2]io.WriteCloser{out, errs}, inErr: make(chan error, 1)}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	if c.control, err = l.open(wire.Request{Op: wire.OpExec, ID: id, Call: n, Exec: e}); err != nil {
		return nil, err
	}
	c.lines = wire.NewLines(c.control)
	for i, op := range []wire.Op{wire.OpStdin, wire.OpStdout, wire.OpStderr} {
		if c.streams[i], err = l.open(wire.Request{Op: op, ID: id, Call: n}); err != nil {
			return nil, err
		}
	}
	go c.copyIn()
	for i, op := range []wire.Op{wire.OpStdout, wire.OpStderr} {
		c.copied.Go(func() { c.copyOut(op, c.outs[i], c.streams[i+1]) })
	}
	return c, nil
}

// copyIn passes the input on. The command sees only its true end; when reading it breaks, there is no end.
func (c *call) copyIn() {
	if !isNil(c.in) {
		if _, err := io.CopyBuffer(plainWriter{c.streams[0]}, plainReader{c.in}, make([]byte, 128<<10)); err != nil {
			if !errors.Is(err, os.ErrClosed) {
				c.inErr <- err
			}
			return
		}
	}
	_ = c.streams[0].Close()
}

// copyOut passes one stream of output on, and says so to the command when nobody takes it any more.
func (c *call) copyOut(op wire.Op, to io.Writer, from *yamux.Stream) {
	var err error = syscall.EPIPE
	if !isNil(to) {
		_, err = io.CopyBuffer(plainWriter{to}, plainReader{from}, make([]byte, 128<<10))
	}
	if err != nil {
		_ = c.tell(wire.Control{Shut: op}) // a command that has ended needs none
		_, _ = io.Copy(io.Discard, from)
	}
}

// plainWriter and plainReader keep io.Copy from looking for shortcuts that streams do not have.
type (
	plainWriter struct{ io.Writer }
	plainReader struct{ io.Reader }
)

// isNil says whether a stream is missing; a nil *os.File in an interface is, too.
func isNil(v any) bool {
	f, ok := v.(*os.File)
	return v == nil || ok && f == nil
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
	for _, f := range []any{c.in, c.outs[0], c.outs[1]} {
		if closer, ok := f.(io.Closer); ok && !isNil(f) {
			_ = closer.Close()
		}
	}
	for _, s := range c.streams {
		if s != nil {
			_ = s.SetDeadline(time.Unix(1, 0))
			_ = s.Close()
		}
	}
}

// watch delivers signals and window sizes until the command has ended and its output was passed on, and sees to it that
// it ends when ctx does.
func (c *call) watch(ctx context.Context, cmd *sdk.Command) (*wire.Exit, error) {
	done, finished := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(finished)
		signals, resizes := cmd.Signals, cmd.Resizes
		for {
			select {
			case n, ok := <-signals:
				if !ok {
					signals = nil
					continue
				}
				_ = c.tell(wire.Control{Signal: n}) // a command that has ended needs none
			case size, ok := <-resizes:
				if !ok {
					resizes = nil
					continue
				}
				_ = c.tell(wire.Control{Resize: &wire.Size{Rows: size.Rows, Cols: size.Cols}})
			case <-ctx.Done():
				c.end(cmd.Grace, done)
				return
			case <-done:
				return
			}
		}
	}()
	exit, err := c.listen(cmd.Started)
	close(done)
	<-finished
	if err != nil {
		return nil, err
	}
	c.drain(ctx)
	return exit, nil
}

// end has the guest end the command. A guest that does not answer is given up.
func (c *call) end(grace time.Duration, done <-chan struct{}) {
	if grace <= 0 {
		grace = supervise.DefaultGrace
	}
	_ = c.tell(wire.Control{End: true, Grace: grace}) // a connection that is lost has ended it
	timer := time.NewTimer(grace + endTimeout)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		_ = c.control.SetDeadline(time.Unix(1, 0))
		<-done
	}
}

// listen hears from the guest until the command has ended.
func (c *call) listen(started func()) (*wire.Exit, error) {
	for {
		var ev wire.Event
		if err := c.lines.Next(&ev); err != nil {
			return nil, c.link.lost(err)
		}
		if ev.Started && started != nil {
			started()
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
		return nil, fromGuest(e.Err)
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
