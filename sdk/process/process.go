package process

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"
)

var errTodo = errors.New("not implemented")

// Group is a set of processes kept by the kernel. *limits.Group is one.
type Group interface {
	Start(cmd *exec.Cmd) error      // start cmd inside it, on the calling thread
	Kill(ctx context.Context) error // kill all of it and wait until it is empty
	Pids() ([]int, error)
}

// DefaultGrace is the time between SIGTERM and SIGKILL when Options holds none.
const DefaultGrace = 2 * time.Second

// Options say how a command is started and ended.
type Options struct {
	Grace    time.Duration // from SIGTERM to SIGKILL; 0 means DefaultGrace, below 0 none
	Group    Group         // optional; must hold nothing but this command
	Session  bool          // a session of its own, not only a process group
	Terminal *Terminal     // optional; becomes the controlling terminal and all three streams; implies Session
}

// Process is a started command. Its methods are safe for concurrent use; Wait may be called more than once.
type Process struct{}

// Start starts cmd, whose SysProcAttr it completes: the leader of its own process group, killed when this process dies.
// An error means that nothing runs.
func Start(cmd *exec.Cmd, o Options) (*Process, error) { return nil, errTodo }

// Pid is the process id of the leader.
func (p *Process) Pid() int { return 0 }

// Signal sends sig to the process group of the leader.
func (p *Process) Signal(sig syscall.Signal) error { return errTodo }

// Done is closed when the leader has ended and its tree is gone.
func (p *Process) Done() <-chan struct{} { return nil }

// Wait returns when the leader has ended and nothing of its tree is left. When ctx ends first the whole tree is told to
// end by SIGTERM, and is killed after the grace; the result's Stopped is then context.Cause(ctx).
func (p *Process) Wait(ctx context.Context) Result { return Result{} }

// Result says how a command ended.
type Result struct {
	Code    int            // 0-255; 128+n after signal n
	Signal  syscall.Signal // 0 when it exited by itself
	Core    bool
	Stopped error // why Wait ended it, context.Cause of its context; nil when it ended by itself
	Killed  bool  // SIGKILL was needed, for the leader or for something it left behind
	Usage   Usage
	Err     error // the end could not be observed, or something could not be killed
}

// Usage is what the leader used, and of its descendants those it waited for.
type Usage struct {
	Wall      time.Duration
	User, Sys time.Duration
	MaxRSS    int64 // bytes, of the largest single process
}

// Terminal is a pseudo-terminal: a command's end and ours.
type Terminal struct {
	Master *os.File // ours: what the command prints is read here, what is typed is written here
	slave  *os.File
}

// OpenTerminal makes a terminal of the given size; zeros mean 24 rows and 80 columns.
func OpenTerminal(rows, cols uint16) (*Terminal, error) { return nil, errTodo }

// Resize tells the command, by SIGWINCH, that its terminal has another size.
func (t *Terminal) Resize(rows, cols uint16) error { return errTodo }

// Close closes both ends.
func (t *Terminal) Close() error { return errTodo }

// Streams are the ends of FIFOs that a command gets as its standard streams. They are plain blocking descriptors: give
// them to exec.Cmd as they are, and it makes no copying goroutine and no pipe.
type Streams struct{ Stdin, Stdout, Stderr *os.File }

// OpenStreams opens the FIFOs at the given paths, stdin to read and the others to write; an empty path leaves its stream
// nil. Each open waits for the peer to open the other end, all at once, so that no order of opening can deadlock, and
// at the longest until ctx ends. Anything that is not a FIFO is refused.
func OpenStreams(ctx context.Context, stdin, stdout, stderr string) (*Streams, error) {
	return nil, errTodo
}

// Close closes what is open. A command that was started keeps its own descriptors.
func (s *Streams) Close() error { return errTodo }

// ErrHostGone is the cause of a Lifeline's end.
var ErrHostGone = errors.New("the host is gone")

// Lifeline returns a context that ends with cause ErrHostGone when the pipe on descriptor fd reports end of file: the
// host, which holds the other end and never writes, has died or let go. From then on, and before, writing to a closed
// pipe is an error and no longer kills this process; its children keep the default.
func Lifeline(parent context.Context, fd uintptr) (context.Context, context.CancelFunc, error) {
	return nil, nil, errTodo
}
