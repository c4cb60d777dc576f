package remote

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/hutch-run/hutch/sdk/contract"
)

// Client is the near end of a connection. Its methods are safe for concurrent use.
type Client struct {
	session *yamux.Session
	opening sync.Mutex // held while streams are opened that belong together
}

// NewClient begins to speak over conn, which the client closes with itself.
func NewClient(conn io.ReadWriteCloser) (*Client, error) {
	session, err := yamux.Client(conn, Config())
	if err != nil {
		return nil, err
	}
	return &Client{session: session}, nil
}

// Close ends the connection, and with it its commands.
func (c *Client) Close() error { return c.session.Close() }

// Done is closed when the connection is over.
func (c *Client) Done() <-chan struct{} { return c.session.CloseChan() }

// Alive says whether the connection is not over.
func (c *Client) Alive() bool { return !c.session.IsClosed() }

// Open opens a stream that begins with a request. One that is too long is a ReasonConfig error; any other error says
// that the connection is over.
func (c *Client) Open(req any) (*yamux.Stream, error) {
	streams, err := c.open(req, 1)
	if err != nil {
		return nil, err
	}
	return streams[0], nil
}

// open opens n streams that belong together, of which the first begins with a request.
func (c *Client) open(req any, n int) ([]*yamux.Stream, error) {
	line, err := encode(req)
	if err != nil {
		return nil, contract.Errorf(contract.ReasonConfig, "ask the far end: %w", err)
	}
	streams := make([]*yamux.Stream, n)
	c.opening.Lock()
	defer c.opening.Unlock()
	for i := range streams {
		if streams[i], err = c.session.OpenStream(); err != nil {
			return nil, err // and the other streams are over, too
		}
	}
	_, err = streams[0].Write(line)
	return streams, err
}

// Command is a command as its client has it. Its methods are safe for concurrent use; Wait is called once.
type Command struct {
	control *yamux.Stream
	lines   *Lines
	streams []*yamux.Stream // stdin, stdout and stderr at the far end
	in      io.ReadCloser   // nil for an empty input
	outs    [2]io.WriteCloser
	copied  sync.WaitGroup // of all output
	inErr   chan error

	started  chan struct{}
	executed bool // valid when started is closed

	mu sync.Mutex // of what is written to control
}

// drainTimeout bounds the wait for the reader of the last output of a command that was ended: it may have stopped
// reading.
const drainTimeout = 10 * time.Second

// endTimeout is how long the far end may take to report the end of a command that was killed.
const endTimeout = time.Minute

// Start starts the command of a request. What it reads comes from in, unless that is nil, and what it writes goes to
// out and errs, all of which Close closes, and Start when it fails. For errors see [Client.Open].
func (c *Client) Start(req any, in io.ReadCloser, out, errs io.WriteCloser) (*Command, error) {
	cmd := &Command{in: in, outs: [2]io.WriteCloser{out, errs}, inErr: make(chan error, 1), started: make(chan struct{})}
	streams, err := c.open(req, 4)
	if err != nil {
		cmd.Close()
		return nil, err
	}
	cmd.control, cmd.streams, cmd.lines = streams[0], streams[1:], NewLines(streams[0])
	go cmd.copyIn()
	for i := range cmd.outs {
		cmd.copied.Go(func() { cmd.copyOut(1 + i) })
	}
	return cmd, nil
}

// copyIn passes the input on. The command sees only its true end; when reading it breaks, there is no end.
func (c *Command) copyIn() {
	if c.in != nil {
		if err := copyAll(c.streams[0], c.in); err != nil {
			if !errors.Is(err, os.ErrClosed) {
				c.inErr <- err
			}
			return
		}
	}
	_ = c.streams[0].Close()
}

// copyOut passes one stream of output on, and says so to the command when nobody takes it any more.
func (c *Command) copyOut(n int) {
	if copyAll(c.outs[n-1], c.streams[n]) != nil {
		_ = c.tell(Control{Shut: n}) // a command that has ended needs none
		_, _ = io.Copy(io.Discard, c.streams[n])
	}
}

func (c *Command) tell(v Control) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Send(c.control, v)
}

// Close lets go of everything. A command that has not ended is killed by that.
func (c *Command) Close() {
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

// Started is closed when the command was executed, or never will be.
func (c *Command) Started() <-chan struct{} { return c.started }

// Executed says, once Started is closed, whether the command ever ran.
func (c *Command) Executed() bool { return c.executed }

// Signal sends a signal to the command itself.
func (c *Command) Signal(s syscall.Signal) error { return c.tell(Control{Signal: int(s)}) }

// SignalGroup sends a signal to the command's process group.
func (c *Command) SignalGroup(s syscall.Signal) error {
	return c.tell(Control{Signal: int(s), Group: true})
}

// Kill kills all that the command started. It does not wait; a far end that does not answer is given up.
func (c *Command) Kill() error {
	_ = c.control.SetReadDeadline(time.Now().Add(endTimeout))
	return c.tell(Control{Kill: true}) // a connection that is lost has ended it
}

// Resize sets the size of the command's terminal; one that has ended, or none, needs no size.
func (c *Command) Resize(rows, cols uint16) {
	_ = c.tell(Control{Resize: &Size{Rows: rows, Cols: cols}})
}

// InputFailed gets the error when reading the input breaks: the command then sees no end of it.
func (c *Command) InputFailed() <-chan error { return c.inErr }

// Wait waits until the command has ended. An error says that the connection is over, and the command with it.
func (c *Command) Wait() (*Exit, error) {
	begun := sync.OnceFunc(func() { close(c.started) })
	defer begun()
	for {
		var ev Event
		if err := c.lines.Next(&ev); err != nil {
			return nil, err
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

// Drain waits until all output was passed on, when ctx has ended for 10 seconds at most.
func (c *Command) Drain(ctx context.Context) {
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
