package agent

import (
	"context"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/podman/internal/agent/wire"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/command"
	"github.com/hutch-run/hutch/sdk/supervise"
	"github.com/hutch-run/hutch/sdk/supervise/microinit"
)

// Process is one command in the container. Its methods are safe for concurrent use.
type Process struct {
	*supervise.Child
	conn     *Conn
	tried    []string
	dir      string
	terminal *os.File
	ended    chan struct{}

	exit *Exit // both valid when ended is closed
	err  error
}

// Terminal is our end of the command's terminal, nil when it has none. What the command prints is read from it, what is
// typed is written to it, and its window size is set on it. It is the caller's to close.
func (p *Process) Terminal() *os.File { return p.terminal }

// Wait returns when the command has ended and nothing of its tree is left. What it
// leaves behind is killed at once. When ctx ends first nothing happens to the command; Wait may be called again.
func (p *Process) Wait(ctx context.Context) (*Exit, error) {
	select {
	case <-p.ended:
		return p.exit, p.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// openTerminal makes a terminal, and returns the command's end of it.
func (p *Process) openTerminal(ctx context.Context, size *sdk.WindowSize) (slave *os.File, err error) {
	a, err := p.conn.ask(ctx, wire.Request{Op: wire.Terminal, Arg: uint32(size.Rows)<<16 | uint32(size.Cols)})
	if err != nil {
		return nil, err
	}
	if a.Op != wire.Opened {
		return nil, failure(a)
	}
	_, err = unix.IoctlGetInt(a.fds[0], unix.TIOCGPTN)
	if err == nil {
		err = unix.SetNonblock(a.fds[0], true) // so that Close wakes a reader
	}
	if err != nil {
		closeAll(a.fds)
		return nil, sdk.Errorf(sdk.ReasonInternal, "the agent gave something else for a terminal: %w", err)
	}
	p.terminal = os.NewFile(uintptr(a.fds[0]), "/dev/ptmx")
	return os.NewFile(uintptr(a.fds[1]), "/dev/pts"), nil
}

// lastReports bounds the wait for the reports of an init that has ended.
const lastReports = 5 * time.Second

// follow waits until the init has ended, and notes how the command did.
func (p *Process) follow(ended <-chan answer) {
	defer p.conn.forget(p)
	defer close(p.ended)
	defer p.Finish()
	a := answer{}
	select {
	case a = <-ended:
	case <-p.conn.done:
		_ = p.Kill()
		p.err = gone(p.conn.err)
		return
	}
	if a.Op != wire.Ended {
		p.err = failure(a)
		return
	}
	select {
	case <-p.Over():
	case <-time.After(lastReports):
	}
	init := syscall.WaitStatus(a.Value)
	status, reported := p.Status()
	if init.Signaled() {
		pid := uint32(0)
		if !reported {
			pid, _ = p.Report(microinit.Started)
		}
		next, err := p.conn.ask(context.Background(), wire.Request{Op: wire.Await, Arg: pid})
		if err != nil {
			p.err = err
			return
		}
		if next.Op == wire.Ended {
			a, status, reported = next, syscall.WaitStatus(next.Value), true
		}
	}
	not, err := command.Unexecuted(p.Child, p.tried, p.dir)
	switch {
	case not != nil:
		p.exit = &Exit{NotStarted: not}
	case err != nil:
		p.err = err
	case !reported:
		p.err = sdk.Errorf(sdk.ReasonInternal,
			"how the command ended is not known: something in the sandbox killed the process that watched it")
	default:
		p.exit = &Exit{
			Status: status, User: time.Duration(a.User) * time.Microsecond, Sys: time.Duration(a.Sys) * time.Microsecond,
			MaxRSS: int64(a.MaxRSS) << 10, Left: init.ExitStatus() == 1 || init.Signaled(),
		}
	}
}

// failure turns the agent's words into an error.
func failure(a answer) error {
	f, errno := wire.Failure(a.Value), syscall.Errno(a.Errno)
	if f == wire.NoProcess || f == wire.NoFiles {
		return command.UsedUp(f.String(), errno)
	}
	return sdk.Errorf(sdk.ReasonInternal, "the sandbox could not %s: %w", f, errno)
}
