package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/podman/internal/agent/wire"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/command"
	"github.com/hutch-run/hutch/sdk/network/loopback"
	"github.com/hutch-run/hutch/sdk/supervise"
	"github.com/hutch-run/hutch/sdk/supervise/microinit"
)

// Conn is a connection to the agent of one container. Its methods are safe for
// concurrent use; many commands run over one connection at the same time.
type Conn struct {
	socket *supervise.Socket
	done   chan struct{}

	mu        sync.Mutex
	next      uint64
	processes map[*Process]bool
	questions map[uint64]chan<- answer // by id; 0 is that of the lifeline
	err       error                    // why it is over
}

// answer is what came of a request.
type answer struct {
	wire.Reply
	fds []int
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
	_, err := c.ask(ctx, wire.Request{Op: wire.Lifeline})
	return err
}

// Exec starts a command. It returns before the command is executed: see [Process.Started]. ctx bounds this call alone
// and not the command's life.
func (c *Conn) Exec(ctx context.Context, cmd *Command) (*Process, error) {
	if len(cmd.Argv) == 0 || cmd.Argv[0] == "" {
		return nil, sdk.Errorf(sdk.ReasonConfig, "there is no command to run")
	}
	candidates := command.Candidates(cmd.Argv[0], cmd.Env)
	args, err := microinit.Args(cmd.Terminal != nil, cmd.Dir, candidates, cmd.Env, cmd.Argv)
	if err != nil {
		return nil, sdk.Errorf(sdk.ReasonConfig, "the command cannot be passed on: %w", err)
	}
	p := &Process{conn: c, tried: candidates, dir: cmd.Dir, ended: make(chan struct{})}
	streams := [3]*os.File{cmd.Stdin, cmd.Stdout, cmd.Stderr}
	if cmd.Terminal != nil {
		slave, err := p.openTerminal(ctx, cmd.Terminal)
		if err != nil {
			return nil, err
		}
		defer slave.Close()
		streams = [3]*os.File{slave, slave, slave}
	}
	fail := func(err error) (*Process, error) {
		if p.terminal != nil {
			p.terminal.Close()
		}
		return nil, err
	}
	child, files, err := supervise.Prepare(args)
	if err != nil {
		return fail(err)
	}
	defer files.Close()
	p.Child = child
	c.mu.Lock()
	c.processes[p] = true
	c.mu.Unlock()
	give, op := []*os.File{streams[0], streams[1], streams[2], files.Status, files.Exec, files.Block}, wire.Exec
	var ended <-chan answer
	if cmd.Observer != nil {
		var filter *os.File
		if filter, err = memfd(cmd.Filter); err == nil {
			defer filter.Close()
			give, op = append(give, filter, cmd.Observer), wire.Observe
		}
	}
	if err == nil {
		var fds []int
		for _, f := range give {
			fds = append(fds, int(f.Fd()))
		}
		ended, err = c.begin(wire.Request{Op: op}, fds...)
		runtime.KeepAlive(give)
	}
	if err != nil {
		c.forget(p)
		child.Finish()
		return fail(err)
	}
	go p.follow(ended)
	go child.Assist(p.ended)
	return p, nil
}

// memfd returns a file that has data.
func memfd(data []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("filter", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "filter")
	_, err = f.WriteAt(data, 0)
	return f, err
}

func (c *Conn) forget(p *Process) {
	c.mu.Lock()
	delete(c.processes, p)
	c.mu.Unlock()
}

// Dial connects to a port of the container's loopback: see [loopback.Connect]. The connection is nil when nothing
// listens there.
func (c *Conn) Dial(ctx context.Context, port int) (net.Conn, error) {
	a, err := c.ask(ctx, wire.Request{Op: wire.Dial, Arg: uint32(port)})
	switch errno := syscall.Errno(a.Errno); {
	case err != nil:
		return nil, err
	case a.Op == wire.Dialled:
		return loopback.Conn(a.fds[0])
	case errno == unix.ECONNREFUSED:
		return nil, nil
	default:
		return nil, fmt.Errorf("connect to the sandbox's loopback: %w", errno)
	}
}

// begin sends a request under an id of its own; the answer comes over the channel, which has room for it.
func (c *Conn) begin(r wire.Request, fds ...int) (<-chan answer, error) {
	reply := make(chan answer, 1)
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return nil, gone(c.err)
	}
	if r.Op != wire.Lifeline {
		c.next++
		r.ID = c.next
	}
	c.questions[r.ID] = reply // before the question: the answer may be quick
	c.mu.Unlock()
	if err := c.send(r, fds...); err != nil {
		c.mu.Lock()
		delete(c.questions, r.ID)
		c.mu.Unlock()
		return nil, err
	}
	return reply, nil
}

// ask sends a request and waits for its answer.
func (c *Conn) ask(ctx context.Context, r wire.Request) (answer, error) {
	reply, err := c.begin(r)
	if err != nil {
		return answer{}, err
	}
	select {
	case a := <-reply:
		return a, nil
	case <-c.done:
		return answer{}, gone(c.err)
	case <-ctx.Done():
		go func() {
			select {
			case a := <-reply:
				closeAll(a.fds)
			case <-c.done:
			}
		}()
		return answer{}, context.Cause(ctx)
	}
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
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
		var m supervise.Message
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
	for p := range c.processes {
		_ = p.Kill()
	}
	close(c.done)
}

// answers are the replies to requests.
var answers = map[wire.ReplyOp]bool{
	wire.Tied: true, wire.Failed: true, wire.Ended: true, wire.Dialled: true, wire.Refused: true, wire.Opened: true,
}

// take is given one reply. The agent is part of the container; what makes no sense
// is an error, which ends the connection.
func (c *Conn) take(r wire.Reply, m *supervise.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	reply := c.questions[r.ID]
	if reply == nil || !answers[r.Op] {
		return fmt.Errorf("protocol error: reply %d to the request %d, which was not made", r.Op, r.ID)
	}
	delete(c.questions, r.ID)
	reply <- answer{r, m.FDs}
	m.FDs = nil
	return nil
}
