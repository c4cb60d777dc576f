package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/podman/internal/agent/wire"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/network/loopback"
	"github.com/hutch-run/hutch/sdk/supervise/microinit"
)

// Conn is a connection to the agent of one container. Its methods are safe for
// concurrent use; many commands run over one connection at the same time.
type Conn struct {
	socket *wire.Socket
	tied   chan struct{}
	done   chan struct{}

	mu        sync.Mutex
	next      uint64
	processes map[uint64]*Process
	dials     map[uint64]chan<- dialled
	isTied    bool
	err       error // why it is over
}

// Close ends the connection and kills every command that was started over it, with
// all their descendants. It does not wait for their ends.
func (c *Conn) Close() error {
	err := c.socket.Close()
	<-c.done
	return err
}

// Done is closed when the connection is over: closed, or the container is gone.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Lifeline ties the container to this connection: when it ends, for whatever
// reason, the agent exits, and the container with it.
func (c *Conn) Lifeline(ctx context.Context) error {
	if err := c.send(wire.Request{Op: wire.Lifeline}); err != nil {
		return err
	}
	select {
	case <-c.tied:
		return nil
	case <-c.done:
		return gone(c.err)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Exec starts a command. It returns before the command is executed: see
// [Process.Started]. ctx bounds this call alone and not the command's life.
func (c *Conn) Exec(ctx context.Context, cmd *Command) (*Process, error) {
	block, candidates, err := cmd.block()
	if err != nil {
		return nil, sdk.Errorf(sdk.ReasonConfig, "the command cannot be passed on: %w", err)
	}
	defer unix.Close(block)
	p := &Process{conn: c, tried: candidates, dir: cmd.Dir, started: make(chan struct{}), ended: make(chan struct{}), master: make(chan struct{})}
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return nil, gone(c.err)
	}
	c.next++
	p.id = c.next
	c.processes[p.id] = p // before the question: the answer may be quick
	c.mu.Unlock()

	r := wire.Request{Op: wire.Exec, ID: p.id}
	if cmd.Terminal != nil {
		r.Flags, r.Arg = wire.OnTerminal, uint32(cmd.Terminal.Rows)<<16|uint32(cmd.Terminal.Cols)
		err = c.send(r, block)
	} else {
		err = c.send(r, block, int(cmd.Stdin.Fd()), int(cmd.Stdout.Fd()), int(cmd.Stderr.Fd()))
		runtime.KeepAlive(cmd)
	}
	if err != nil {
		c.mu.Lock()
		delete(c.processes, p.id)
		c.mu.Unlock()
		return nil, err
	}
	if cmd.Terminal == nil {
		return p, nil
	}
	select {
	case <-p.master:
	case <-p.ended: // for want of a terminal, as Wait will say
	case <-ctx.Done():
		_ = p.Kill() // Close, where that fails, does as much
		go func() {
			<-p.ended
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.terminal != nil {
				p.terminal.Close()
			}
		}()
		return nil, context.Cause(ctx)
	}
	return p, nil
}

// dialled is what came of a [wire.Dial].
type dialled struct {
	fd  int
	err error
}

// Dial connects to a port of the container's loopback: see [loopback.Connect]. The connection is nil when nothing
// listens there.
func (c *Conn) Dial(ctx context.Context, port int) (net.Conn, error) {
	answer := make(chan dialled, 1)
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return nil, gone(c.err)
	}
	c.next++
	id := c.next
	c.dials[id] = answer
	c.mu.Unlock()
	if err := c.send(wire.Request{Op: wire.Dial, ID: id, Arg: uint32(port)}); err != nil {
		return nil, err
	}
	select {
	case d := <-answer:
		if d.err != nil || d.fd < 0 {
			return nil, d.err
		}
		return loopback.Conn(d.fd)
	case <-c.done:
		return nil, gone(c.err)
	case <-ctx.Done():
		go func() {
			select {
			case d := <-answer:
				if d.fd >= 0 {
					unix.Close(d.fd)
				}
			case <-c.done:
			}
		}()
		return nil, context.Cause(ctx)
	}
}

func (c *Conn) send(r wire.Request, fds ...int) error {
	err := c.socket.Send(r.Append(make([]byte, 0, wire.RequestSize)), fds...)
	if err != nil {
		select {
		case <-c.done:
			err = c.err
		default:
		}
		return gone(err)
	}
	return nil
}

// receive takes the agent's messages until the connection is over.
func (c *Conn) receive() {
	buf := make([]byte, wire.ReplySize+1)
	var err error
	for err == nil {
		var m wire.Message
		if m, err = c.socket.Recv(buf); err != nil {
			break
		}
		var r wire.Reply
		if r, err = wire.ParseReply(m.Data, len(m.FDs)); err == nil {
			err = c.take(r, &m)
		}
		m.Close()
	}
	c.socket.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	if errors.Is(err, io.EOF) {
		c.err = errors.New("the agent has ended")
	}
	for _, p := range c.processes {
		p.end(nil, gone(c.err))
	}
	clear(c.processes)
	close(c.done)
}

// take is given one reply. The agent is part of the container; what makes no sense
// is an error, which ends the connection.
func (c *Conn) take(r wire.Reply, m *wire.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if answer := c.dials[r.ID]; answer != nil {
		delete(c.dials, r.ID)
		switch {
		case r.Op == wire.Dialled:
			answer <- dialled{fd: m.FDs[0]}
			m.FDs = nil
		case r.Op == wire.Refused && syscall.Errno(r.Errno) == unix.ECONNREFUSED:
			answer <- dialled{fd: -1}
		case r.Op == wire.Refused:
			answer <- dialled{fd: -1, err: fmt.Errorf("connect to the sandbox's loopback: %w", syscall.Errno(r.Errno))}
		default:
			return fmt.Errorf("the agent says %d of a connection", r.Op)
		}
		return nil
	}
	p := c.processes[r.ID]
	switch {
	case r.Op == wire.Tied && !c.isTied:
		c.isTied = true
		close(c.tied)
		return nil
	case p == nil:
		return fmt.Errorf("the agent speaks of a command %d that does not run", r.ID)
	}
	switch r.Op {
	case wire.Terminal:
		fd := m.FDs[0]
		m.FDs = nil
		return p.setTerminal(fd)
	case wire.Started:
		return p.start(int(r.Value))
	case wire.Failed:
		delete(c.processes, r.ID)
		p.end(nil, p.failure(wire.Failure(r.Value), syscall.Errno(r.Errno)))
		return nil
	case wire.Exited:
		delete(c.processes, r.ID)
		p.end(exitOf(r), nil)
		return nil
	}
	return fmt.Errorf("the agent says %d where it makes no sense", r.Op)
}

// block puts the command into a memfd, in the form that its own first instructions
// read. It also returns the paths that will be tried.
func (cmd *Command) block() (fd int, candidates []string, err error) {
	if len(cmd.Argv) == 0 || cmd.Argv[0] == "" {
		return -1, nil, errors.New("there is no command to run")
	}
	if cmd.Terminal == nil && (cmd.Stdin == nil || cmd.Stdout == nil || cmd.Stderr == nil) {
		return -1, nil, errors.New("it has neither all three streams nor a terminal")
	}
	candidates = cmd.candidates()
	args, err := microinit.Args(cmd.Terminal != nil, cmd.Dir, candidates, cmd.Env, cmd.Argv)
	if err != nil {
		return -1, nil, err
	}
	block, err := microinit.Block(append([]string{"init"}, args...))
	if err != nil {
		return -1, nil, err
	}
	fd, err = unix.MemfdCreate("command", unix.MFD_CLOEXEC)
	if err != nil {
		return -1, nil, err
	}
	for off := 0; off < len(block); {
		n, err := unix.Pwrite(fd, block[off:], int64(off))
		if err != nil {
			unix.Close(fd)
			return -1, nil, err
		}
		off += n
	}
	return fd, candidates, nil
}
