package agent

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/hutch-run/hutch/sdk"
)

// Conn is a connection to the agent of one container. Its methods are safe for
// concurrent use; many commands run over one connection at the same time.
type Conn struct{}

var errTODO = errors.New("not implemented")

// Dial connects to the agent that listens at path, a socket in a directory which
// the container can write to and is therefore not to be trusted: a path that is no
// socket is refused, and so is a listener that is not the process wantPID, the
// container's init as this host numbers it. ctx bounds the whole of it, the
// agent's first answer included.
//
// A container that is just being started may not listen yet: the error is then
// os.ErrNotExist or syscall.ECONNREFUSED, and the caller may try again.
func Dial(ctx context.Context, path string, wantPID int) (*Conn, error) { return nil, errTODO }

// Close ends the connection and kills every command that was started over it, with
// all their descendants. It does not wait for their ends.
func (c *Conn) Close() error { return errTODO }

// Done is closed when the connection is over: closed, or the container is gone.
func (c *Conn) Done() <-chan struct{} { return nil }

// Lifeline ties the container to this connection: when it ends, for whatever
// reason, the agent exits, and the container with it.
func (c *Conn) Lifeline(ctx context.Context) error { return errTODO }

// Exec starts a command and returns as soon as the agent has a process for it,
// which may be before the command itself is executed: see [Process.Started]. ctx
// bounds this call alone and not the command's life.
func (c *Conn) Exec(ctx context.Context, cmd *Command) (*Process, error) { return nil, errTODO }

// Put writes what r holds at path in the container, as [sdk.Putter] says.
func (c *Conn) Put(ctx context.Context, path string, format sdk.Format, r io.Reader) error {
	return errTODO
}

// Get writes what is at path in the container to w, as [sdk.Getter] says. What comes
// is whatever the sandbox likes: the caller must take it for hostile.
func (c *Conn) Get(ctx context.Context, path string, format sdk.Format, w io.Writer) error {
	return errTODO
}

// Remove removes what is at path in the container, as [sdk.Remover] says. Which
// directories the sandbox itself is made of the caller must know.
func (c *Conn) Remove(ctx context.Context, path string, recursive bool) error { return errTODO }

// Process is one command in the container. Its methods are safe for concurrent use.
type Process struct{}

// Started is closed when the command has been executed, or never will be: Executed
// tells which.
func (p *Process) Started() <-chan struct{} { return nil }

// Executed says, once Started is closed, whether the command itself ever ran.
func (p *Process) Executed() bool { return false }

// PID is the command's process id inside the container, 0 before Started.
func (p *Process) PID() int { return 0 }

// Terminal is our end of the command's terminal, nil when it has none. What the
// command prints is read from it, what is typed is written to it, and its window
// size is set on it. It is the caller's to close.
func (p *Process) Terminal() *os.File { return nil }

// Signal sends a signal to the command itself, once it is executed. One that is
// gone by then gets none. It does not wait.
func (p *Process) Signal(s syscall.Signal) error { return errTODO }

// SignalGroup sends a signal to the command's process group.
func (p *Process) SignalGroup(s syscall.Signal) error { return errTODO }

// Kill kills the command and all its descendants, those that made sessions of
// their own too, and nothing else in the container. It does not wait.
func (p *Process) Kill() error { return errTODO }

// Wait returns when the command has ended and nothing of its tree is left. What it
// leaves behind is killed at once. A command that was never executed is a
// *[NotRunnable] where the command is to blame, and an *[sdk.Error] otherwise. When
// ctx ends first nothing happens to the command; Wait may be called again.
func (p *Process) Wait(ctx context.Context) (*Exit, error) { return nil, errTODO }
