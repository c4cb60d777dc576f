// Package server is the agent itself: pid 1 of a container, which starts commands
// for a host outside.
//
// It trusts nobody in the container, with whom it shares the user. It makes itself
// unreadable, so that none of them can trace it or take its descriptors; it ignores
// their signals; its socket is a descriptor that it was born with and has no name in
// the container, and a peer with a process id in the container's namespace is turned
// away all the same. See [Main] for the order in which that happens.
//
// Each command has its own reaper above it (package microinit), so that all its
// descendants can be told from those of others, and killed.
package server

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/podman/internal/agent/wire"
	"github.com/hutch-run/hutch/sdk/network/loopback"
)

// maxConns bounds the connections at a time, maxCommands the commands of them all.
const (
	maxConns    = 256
	maxCommands = 4096
)

// server is the agent.
type server struct {
	reaper int // the program that stands above each command, a memfd

	oom *score

	mu      sync.Mutex
	watched map[int]chan<- death // processes whose end somebody waits for, by pid
	adopted map[int]bool         // commands whose reaper was killed, by pid
	// The last orphans that nobody waited for, in a ring.
	unclaimed [64]death
	orphans   int
	commands  int
	conns     int
	tied      bool // a connection is our lifeline

	killers chan struct{} // one for each thread that may be killing
}

// listen accepts connections on the socket fd until the process ends.
func (s *server) listen(fd int) error {
	socket, err := wire.NewSocket(fd)
	if err != nil {
		return err
	}
	for {
		near, err := socket.Accept()
		switch err {
		case nil:
		case unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOBUFS:
			time.Sleep(10 * time.Millisecond) // until one is closed
			continue
		case unix.ECONNABORTED:
			continue
		default:
			return fmt.Errorf("accept: %w", err)
		}
		// A process of this container, or of one below it, has a number here. A process of the host has none.
		peer, err := unix.GetsockoptUcred(near, unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil || peer.Pid != 0 || !s.enter() {
			unix.Close(near)
			continue
		}
		c, err := wire.NewSocket(near)
		if err != nil {
			s.leave()
			continue
		}
		go s.serve(c)
	}
}

func (s *server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns >= maxConns {
		return false
	}
	s.conns++
	return true
}

func (s *server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns--
}

// conn is one connection from the host.
type conn struct {
	*server
	socket   *wire.Socket
	mu       sync.Mutex
	commands map[uint64]*command
	lifeline bool
}

// serve answers the requests that come over one connection.
func (s *server) serve(socket *wire.Socket) {
	c := &conn{server: s, socket: socket, commands: map[uint64]*command{}}
	defer func() {
		if c.lifeline {
			os.Exit(0) // and the kernel kills all the others
		}
		socket.Close()
		c.mu.Lock()
		for _, cmd := range c.commands {
			cmd.kill()
		}
		c.mu.Unlock()
		s.leave()
	}()
	if c.send(wire.Reply{Op: wire.Hello, Value: wire.Version}) != nil {
		return
	}
	buf := make([]byte, wire.RequestSize+1)
	for {
		m, err := socket.Recv(buf)
		if err == wire.ErrNoFiles {
			if r, err := wire.ParseExec(m.Data); err == nil {
				c.failed(r.ID, wire.NoFiles, unix.EMFILE)
				continue
			}
		}
		if err != nil {
			if err != io.EOF {
				complain("a message of the host: %v", err)
			}
			return
		}
		r, err := wire.ParseRequest(m.Data, len(m.FDs))
		if err != nil {
			m.Close()
			complain("%v", err)
			return
		}
		c.do(r, m)
	}
}

// do fulfils one request.
func (c *conn) do(r wire.Request, m wire.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cmd := c.commands[r.ID]
	switch r.Op {
	case wire.Exec:
		if cmd != nil {
			m.Close()
			return // the host's mistake: the id is taken
		}
		if !c.admit() {
			m.Close()
			go c.failed(r.ID, wire.NoProcess, unix.EAGAIN)
			return
		}
		cmd = newCommand(c, r, m.FDs)
		c.commands[r.ID] = cmd
		go cmd.live()
	case wire.Signal:
		if cmd != nil { // or it is gone and needs none
			cmd.signal(unix.Signal(r.Arg), r.Flags&wire.ToGroup != 0)
		}
	case wire.Kill:
		if cmd != nil {
			cmd.kill()
		}
	case wire.Dial:
		c.dial(r.ID, int(r.Arg))
	case wire.Lifeline:
		c.lifeline = true
		c.server.mu.Lock()
		c.server.tied = true
		c.server.mu.Unlock()
		go c.send(wire.Reply{Op: wire.Tied}) //nolint:errcheck // whose end is noticed by the reader
	}
}

// dial connects to a port of the container's loopback.
func (c *conn) dial(id uint64, port int) {
	fd, err := loopback.Connect(port)
	if err != nil {
		var errno unix.Errno
		_ = errors.As(err, &errno)
		_ = c.send(wire.Reply{Op: wire.Refused, ID: id, Errno: uint32(errno)}) // a host that is gone is noticed by the reader
		return
	}
	defer unix.Close(fd)
	_ = c.send(wire.Reply{Op: wire.Dialled, ID: id}, fd)
}

// admit counts one more command, if there may be one.
func (s *server) admit() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.commands >= maxCommands {
		return false
	}
	s.commands++
	return true
}

// forget ends what is known of a command.
func (c *conn) forget(id uint64) {
	c.mu.Lock()
	delete(c.commands, id)
	c.mu.Unlock()
	c.server.mu.Lock()
	c.server.commands--
	c.server.mu.Unlock()
}

func (c *conn) send(r wire.Reply, fds ...int) error {
	return c.socket.Send(r.Append(make([]byte, 0, wire.ReplySize)), fds...)
}

func (c *conn) failed(id uint64, f wire.Failure, errno unix.Errno) {
	_ = c.send(wire.Reply{Op: wire.Failed, ID: id, Value: uint32(f), Errno: uint32(errno)}) // a host that is gone is noticed by the reader
}

// complain writes to the container's log.
func complain(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "hutch-podman-agent: "+format+"\n", args...)
}
