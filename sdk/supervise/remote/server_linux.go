package remote

import (
	"fmt"
	"io"
	"os/exec"
	"sync"

	"github.com/hashicorp/yamux"

	"github.com/hutch-run/hutch/sdk/supervise"
)

// Call is a command as the far end has it.
type Call struct {
	stream   *yamux.Stream
	in       *Lines
	std      [3]*yamux.Stream
	terminal *supervise.Terminal
	copied   sync.WaitGroup // of what the terminal prints
	over     chan struct{}  // closed when the command has ended
}

// Accept takes the next request of a client and reads it into req. Of a command, which is what command says of the
// request then, there is a call; of anything else its stream, and what follows the request in it. An error ends the
// connection: streams after a request that cannot be read might be taken for requests.
func Accept(session *yamux.Session, req any, command func() bool) (call *Call, stream *yamux.Stream, rest io.Reader,
	err error) {
	if stream, err = session.AcceptStream(); err != nil {
		return nil, nil, nil, err
	}
	in := NewLines(stream)
	if err := in.Next(req); err != nil {
		return nil, nil, nil, fmt.Errorf("read a request: %w", err)
	}
	if !command() {
		return nil, stream, in.Rest(), nil
	}
	call = &Call{stream: stream, in: in, over: make(chan struct{})}
	for i := range call.std {
		if call.std[i], err = session.AcceptStream(); err != nil {
			return nil, nil, nil, err
		}
	}
	return call, nil, nil, nil
}

// Start starts cmd on the call's streams or, with tty, on a terminal that belongs to a user. Wait waits for it.
func (c *Call) Start(cmd *exec.Cmd, tty *Size, uid, gid int) error {
	return c.StartBy(cmd, tty, uid, gid, func(*supervise.Terminal) error { return cmd.Start() })
}

// StartBy is Start for a caller that starts cmd itself, and waits for it; then it calls Finish. start gets the
// terminal, if there is one.
func (c *Call) StartBy(cmd *exec.Cmd, tty *Size, uid, gid int, start func(*supervise.Terminal) error) error {
	stdin, err := c.attach(cmd, tty, uid, gid)
	if err == nil {
		err = start(c.terminal)
	}
	if c.terminal != nil {
		c.terminal.Slave.Close() // or the end of its output would never be seen
	}
	if err != nil {
		c.closeTerminal()
		return err
	}
	if c.terminal != nil {
		c.copied.Go(func() { _, _ = c.terminal.Output(c.std[1]) })
	}
	go func() { // a command need not read all
		err := copyAll(stdin, c.std[0])
		switch {
		case c.terminal == nil:
			stdin.Close()
		case err == nil:
			_, _ = stdin.Write([]byte{4}) // the end of input is ^D on a terminal
		}
	}()
	return nil
}

// attach gives the command a terminal, or pipes from and to its streams. What it reads is to be written to the result.
func (c *Call) attach(cmd *exec.Cmd, tty *Size, uid, gid int) (stdin io.WriteCloser, err error) {
	if tty == nil {
		cmd.Stdout, cmd.Stderr = output{c.std[1]}, output{c.std[2]}
		return cmd.StdinPipe()
	}
	if c.terminal, err = supervise.OpenTerminal(tty.Rows, tty.Cols); err != nil {
		return nil, err
	}
	slave := c.terminal.Slave
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	return c.terminal.Master, slave.Chown(uid, gid)
}

// output is a stream of what a command prints. Once it is closed who prints more gets SIGPIPE.
type output struct{ *yamux.Stream }

// ReadFrom implements [io.ReaderFrom].
func (o output) ReadFrom(r io.Reader) (int64, error) { return 0, copyAll(o.Stream, r) }

// Wait waits until cmd has ended and all its output is under way.
func (c *Call) Wait(cmd *exec.Cmd) {
	_ = cmd.Wait() // how it ended is seen in its state
	c.Finish()
}

// Finish waits until all output of a command that has ended is under way.
func (c *Call) Finish() {
	c.copied.Wait()
	c.closeTerminal()
}

func (c *Call) closeTerminal() {
	if c.terminal != nil {
		c.terminal.Close()
	}
}

// Started reports that the command was executed.
func (c *Call) Started() { _ = Send(c.stream, Event{Started: true}) } // a client that is gone is noticed by Obey

// End reports how the command ended, and ends the call.
func (c *Call) End(exit *Exit) {
	close(c.over)
	for _, s := range c.std {
		s.Close() // all output is under way before the end is reported
	}
	_ = Send(c.stream, Event{Exit: exit})
	c.stream.Close()
}

// Obey does what the client says until the call has ended: it calls signal, and kill also when the client is gone.
func (c *Call) Obey(signal func(Control), kill func()) {
	for {
		var ctl Control
		if err := c.in.Next(&ctl); err != nil {
			select {
			case <-c.over:
			default: // nobody reads the output any more
				kill()
				c.std[1].Close()
				c.std[2].Close()
			}
			return
		}
		switch {
		case ctl.Kill:
			kill()
		case ctl.Signal > 0:
			signal(ctl)
		case ctl.Resize != nil && c.terminal != nil:
			_ = c.terminal.Resize(ctl.Resize.Rows, ctl.Resize.Cols)
		case (ctl.Shut == 1 || ctl.Shut == 2) && c.terminal == nil: // a terminal takes all, and it goes nowhere
			c.std[ctl.Shut].Close()
		}
	}
}
