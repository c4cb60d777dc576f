// Package server is the agent itself: pid 1 of a container, which starts commands
// for a host outside.
//
// It trusts nobody in the container, with whom it shares the user. It makes itself
// unreadable, so that none of them can trace it or take its descriptors; it ignores
// their signals; its socket is a descriptor that it was born with and has no name in
// the container, and a peer with a process id in the container's namespace is turned
// away all the same. See [Main] for the order in which that happens.
//
// Each command has its own init above it (package microinit), which reports to the host and kills what the command left
// behind. So all that the agent does for a command is to start that init and to say how it ended.
package server

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/podman/internal/agent/wire"
	"github.com/hutch-run/hutch/sdk/network/loopback"
	"github.com/hutch-run/hutch/sdk/supervise"
	"github.com/hutch-run/hutch/sdk/supervise/descendants"
	"github.com/hutch-run/hutch/sdk/supervise/microinit"
)

// maxConns bounds the connections at a time, maxCommands the commands of them all.
const (
	maxConns    = 256
	maxCommands = 4096
)

// server is the agent.
type server struct {
	image *os.File // the program that stands above each command
	oom   *score

	mu      sync.Mutex
	watched map[int]child // by pid
	lost    int           // commands whose init was killed, until the host has awaited their end
	// The last orphans that nobody waited for, in a ring.
	unclaimed [64]death
	orphans   int
	tied      bool // a connection is our lifeline

	conns    slots      // one for each connection
	commands slots      // one for each command
	killing  sync.Mutex // held while something is killed, which takes a thread
}

// listen accepts connections on the socket fd until the process ends.
func (s *server) listen(fd int) error {
	socket, err := supervise.NewSocket(fd)
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
		if err != nil || peer.Pid != 0 || !s.conns.take() {
			unix.Close(near)
			continue
		}
		c, err := supervise.NewSocket(near)
		if err != nil {
			s.conns.free()
			continue
		}
		go s.serve(c)
	}
}

// slots bound how many there are of something: each takes a place, and gives it back.
type slots chan struct{}

func (s slots) take() bool {
	select {
	case s <- struct{}{}:
		return true
	default:
		return false
	}
}

func (s slots) free() { <-s }

// conn is one connection from the host.
type conn struct {
	*server
	socket   *supervise.Socket
	lifeline bool

	mu    sync.Mutex
	inits map[int]chan<- death // of commands that run
	lost  int                  // its part of the server's
	over  bool
}

// serve answers the requests that come over one connection.
func (s *server) serve(socket *supervise.Socket) {
	c := &conn{server: s, socket: socket, inits: map[int]chan<- death{}}
	defer func() {
		if c.lifeline {
			os.Exit(0) // and the kernel kills all the others
		}
		socket.Close()
		c.abandon()
		s.conns.free()
	}()
	if c.send(wire.Reply{Op: wire.Hello, Value: wire.Version}) != nil {
		return
	}
	buf := make([]byte, wire.RequestSize+1)
	for {
		m, err := socket.Recv(buf)
		if err == supervise.ErrNoFiles {
			if r, err := wire.ParseRequest(m.Data, wire.ExecFDs); err == nil {
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
		c.do(r, m.FDs)
		m.Close()
	}
}

// do does what one request asks for. The descriptors are closed afterwards.
func (c *conn) do(r wire.Request, fds []int) {
	switch r.Op {
	case wire.Exec, wire.Observe:
		c.exec(r.ID, fds)
	case wire.Await:
		go c.await(r.ID, int(r.Arg))
	case wire.Terminal:
		c.openTerminal(r)
	case wire.Dial:
		c.dial(r.ID, int(r.Arg))
	case wire.Lifeline:
		c.lifeline = true
		c.server.mu.Lock()
		c.tied = true
		c.server.mu.Unlock()
		_ = c.send(wire.Reply{Op: wire.Tied}) // a host that is gone is noticed by the reader, here and elsewhere
	}
}

// exec starts the init of a command.
func (c *conn) exec(id uint64, fds []int) {
	if !c.commands.take() {
		c.failed(id, wire.NoProcess, unix.EAGAIN)
		return
	}
	files := make([]uintptr, microinit.BlockFD+1)
	for i := range files {
		files[i] = ^uintptr(0) // closed
	}
	for i, fd := range []int{0, 1, microinit.StderrFD, microinit.StatusFD, microinit.ExecFD, microinit.BlockFD} {
		files[fd] = uintptr(fds[i])
	}
	ended := make(chan death, 1)
	pid, err := c.spawn(files, fds[wire.ExecFDs:], ended)
	if err != nil {
		c.commands.free()
		c.failed(id, wire.NoProcess, errnoOf(err))
		return
	}
	c.mu.Lock()
	c.inits[pid] = ended
	c.mu.Unlock()
	go func() {
		d := <-ended
		c.commands.free()
		c.mu.Lock()
		delete(c.inits, pid)
		lost := d.status.Signaled()
		if lost && !c.over {
			c.lost++
			lost = false
		}
		c.mu.Unlock()
		if lost {
			c.settle(1)
		}
		c.ended(id, d)
	}()
}

// await waits for the end of a command whose init was killed; pid is 0 when the host knows it, or there was none.
func (c *conn) await(id uint64, pid int) {
	ended := make(chan death, 1)
	if pid > 1 && c.adopt(pid, ended) {
		d := <-ended
		defer c.ended(id, d)
	} else {
		defer c.failed(id, wire.Lost, unix.ESRCH)
	}
	c.mu.Lock()
	n := min(c.lost, 1)
	c.lost -= n
	c.mu.Unlock()
	c.settle(n)
}

// abandon ends the commands of a host that is gone. Their inits do so when their sockets close, but for what forks
// faster than they kill.
func (c *conn) abandon() {
	c.mu.Lock()
	lost := c.lost
	c.lost, c.over = 0, true
	c.mu.Unlock()
	c.settle(lost)
	c.kill(func() (pids []int) {
		c.server.mu.Lock() // nothing is reaped meanwhile
		defer c.server.mu.Unlock()
		c.mu.Lock()
		defer c.mu.Unlock()
		for pid, ended := range c.inits {
			if c.watched[pid].ended == ended {
				pids = append(pids, descendants.Of(pid)...)
			}
		}
		return pids
	})
}

func (c *conn) ended(id uint64, d death) {
	_ = c.send(wire.Reply{
		Op: wire.Ended, ID: id, Value: uint32(d.status) & 0xffff,
		User: micros(d.usage.Utime), Sys: micros(d.usage.Stime), MaxRSS: uint64(d.usage.Maxrss),
	})
}

func micros(t syscall.Timeval) uint64 { return uint64(t.Sec)*1e6 + uint64(t.Usec) }

func errnoOf(err error) unix.Errno {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return unix.EIO
}

// dial connects to a port of the container's loopback.
func (c *conn) dial(id uint64, port int) {
	fd, err := loopback.Connect(port)
	if err != nil {
		_ = c.send(wire.Reply{Op: wire.Refused, ID: id, Errno: uint32(errnoOf(err))})
		return
	}
	defer unix.Close(fd)
	_ = c.send(wire.Reply{Op: wire.Dialled, ID: id}, fd)
}

func (c *conn) send(r wire.Reply, fds ...int) error {
	return c.socket.Send(r.Append(make([]byte, 0, wire.ReplySize)), fds...)
}

func (c *conn) failed(id uint64, f wire.Failure, errno unix.Errno) {
	_ = c.send(wire.Reply{Op: wire.Failed, ID: id, Value: uint32(f), Errno: uint32(errno)})
}

// complain writes to the container's log.
func complain(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "hutch-podman-agent: "+format+"\n", args...)
}
