package agent

import (
	"context"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/podman/internal/agent/wire"
	"github.com/hutch-run/hutch/sdk"
)

// Process is one command in the container. Its methods are safe for concurrent use.
type Process struct {
	conn  *Conn
	id    uint64
	tried []string
	dir   string

	started, ended chan struct{}
	master         chan struct{} // closed when there is a terminal

	mu       sync.Mutex
	executed bool
	over     bool
	pid      int
	terminal *os.File
	exit     *Exit
	err      error
}

// Started is closed when the command has been executed, or never will be: Executed
// tells which.
func (p *Process) Started() <-chan struct{} { return p.started }

// Executed says, once Started is closed, whether the command itself ever ran.
func (p *Process) Executed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.executed
}

// PID is the command's process id inside the container, 0 before Started.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid
}

// Terminal is our end of the command's terminal, nil when it has none. What the
// command prints is read from it, what is typed is written to it, and its window
// size is set on it. It is the caller's to close.
func (p *Process) Terminal() *os.File {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.terminal
}

// Signal sends a signal to the command itself. One that is not executed yet gets it
// when it is; one that is gone gets none. It does not wait.
func (p *Process) Signal(s syscall.Signal) error { return p.signal(s, 0) }

// SignalGroup sends a signal to the command's process group, likewise.
func (p *Process) SignalGroup(s syscall.Signal) error { return p.signal(s, wire.ToGroup) }

func (p *Process) signal(s syscall.Signal, flags uint32) error {
	if s < 1 || s > 64 {
		return sdk.Errorf(sdk.ReasonConfig, "there is no signal %d", int(s))
	}
	return p.request(wire.Request{Op: wire.Signal, ID: p.id, Flags: flags, Arg: uint32(s)})
}

// Kill kills the command and all its descendants, those that made sessions of
// their own too, and nothing else in the container. It does not wait.
func (p *Process) Kill() error { return p.request(wire.Request{Op: wire.Kill, ID: p.id}) }

func (p *Process) request(r wire.Request) error {
	select {
	case <-p.ended:
		return os.ErrProcessDone
	default:
		return p.conn.send(r)
	}
}

// Wait returns when the command has ended and nothing of its tree is left. What it
// leaves behind is killed at once. A command that was never executed is a
// *[NotRunnable] where the command is to blame, and an *[sdk.Error] otherwise. When
// ctx ends first nothing happens to the command; Wait may be called again.
func (p *Process) Wait(ctx context.Context) (*Exit, error) {
	select {
	case <-p.ended:
		return p.exit, p.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// start notes that the command was executed.
func (p *Process) start(pid int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.executed {
		return sdk.Errorf(sdk.ReasonInternal, "the agent says twice that a command was started")
	}
	p.executed, p.pid = true, pid
	close(p.started)
	return nil
}

// setTerminal takes over fd, of which the agent says that it is a terminal.
func (p *Process) setTerminal(fd int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.SetNonblock(fd, true) // so that Close wakes a reader
	}
	if err != nil || p.terminal != nil {
		unix.Close(fd)
		return sdk.Errorf(sdk.ReasonInternal, "the agent gave something else for a terminal")
	}
	p.terminal = os.NewFile(uintptr(fd), "/dev/ptmx")
	close(p.master)
	return nil
}

// end notes how the command ended, or why that is not known.
func (p *Process) end(exit *Exit, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return
	}
	p.over, p.exit, p.err = true, exit, err
	if !p.executed {
		close(p.started)
	}
	close(p.ended)
}

// failure turns the agent's words into an error.
func (p *Process) failure(f wire.Failure, errno syscall.Errno) error {
	switch f {
	case wire.NoExec:
		code := 126
		if errno == syscall.ENOENT || errno == syscall.ENOTDIR {
			code = 127
		}
		return &NotRunnable{Code: code, Errno: errno, Tried: p.tried}
	case wire.NoDir:
		return sdk.Errorf(sdk.ReasonConfig, "the sandbox could not enter the directory %s to work in: %w", p.dir, errno)
	case wire.Lost:
		return sdk.Errorf(sdk.ReasonInternal, "how the command ended is not known: something in the sandbox killed the process that watched it")
	case wire.NoProcess, wire.NoFiles:
		return sdk.Errorf(sdk.ReasonQuota, "the sandbox could not %s: %w", f, errno).
			WithFix("its processes or descriptors are used up: end some of its commands, or raise its limits")
	}
	return sdk.Errorf(sdk.ReasonInternal, "the sandbox could not %s: %w", f, errno)
}

func exitOf(r wire.Reply) *Exit {
	return &Exit{
		Status: syscall.WaitStatus(r.Value), User: time.Duration(r.User) * time.Microsecond, Sys: time.Duration(r.Sys) * time.Microsecond,
		MaxRSS: int64(r.MaxRSS) << 10, Left: r.Flags&wire.LeftBehind != 0,
	}
}
