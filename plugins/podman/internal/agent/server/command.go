package server

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/podman/internal/agent/wire"
	"github.com/hutch-run/hutch/sdk/supervise/descendants"
	"github.com/hutch-run/hutch/sdk/supervise/microinit"
)

// command is one command and the reaper above it.
type command struct {
	conn    *conn
	request wire.Request
	fds     []int  // the block and the streams, until they are passed on
	streams [3]int // stdin, stdout and stderr among them

	ended chan death    // of the reaper, then, if that one was killed, of the command
	gone  chan struct{} // closed when nothing is left

	mu      sync.Mutex
	reaper  int // pid, 0 before there is one
	pid     int // of the command, 0 while unknown
	pidfd   int // of it, -1 while unknown or where there are none
	killed  bool
	started bool
	early   []early // signals that came before it was started
}

// early is a signal that waits for its command.
type early struct {
	signal unix.Signal
	group  bool
}

// maxEarly bounds the signals that wait for a command.
const maxEarly = 64

func newCommand(c *conn, r wire.Request, fds []int) *command {
	cmd := &command{conn: c, request: r, fds: fds, ended: make(chan death, 2), gone: make(chan struct{}), pidfd: -1}
	if len(fds) == 4 {
		cmd.streams = [3]int(fds[1:])
	}
	return cmd
}

// outcome gathers what was reported about a command.
type outcome struct {
	failure wire.Failure // 0 when it was executed
	errno   unix.Errno
	ended   bool
	status  uint32
}

// live is the life of a command, from its request to the last reply.
func (c *command) live() {
	defer c.conn.forget(c.request.ID)
	status, executed, failure, err := c.start()
	if err != nil {
		close(c.gone)
		c.conn.failed(c.request.ID, failure, errnoOf(err))
		return
	}
	o := c.listen(status, executed)
	d, left := c.bury(&o)
	status.Close() // and not before: a reaper that finds it closed leaves its orphans to others
	c.mu.Lock()
	if c.pidfd >= 0 {
		unix.Close(c.pidfd)
		c.pidfd = -1
	}
	c.pid = 0
	c.mu.Unlock()
	close(c.gone)
	if o.failure != 0 {
		c.conn.failed(c.request.ID, o.failure, o.errno)
		return
	}
	r := wire.Reply{
		Op: wire.Exited, ID: c.request.ID, Value: o.status & 0xffff,
		User: micros(d.usage.Utime), Sys: micros(d.usage.Stime), MaxRSS: uint64(d.usage.Maxrss),
	}
	if left {
		r.Flags = wire.LeftBehind
	}
	_ = c.conn.send(r) // a host that is gone is noticed by the connection's reader
}

// start starts the reaper. It returns the socket on which that reports and the pipe
// that closes when the command is executed.
func (c *command) start() (status *wire.Socket, executed *os.File, failure wire.Failure, err error) {
	defer func() {
		for _, fd := range c.fds {
			unix.Close(fd)
		}
	}()
	if c.request.Flags&wire.OnTerminal != 0 {
		if err := c.openTerminal(); err != nil {
			return nil, nil, wire.NoTerminal, err
		}
	}
	var pair [2]int
	if pair, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0); err != nil {
		return nil, nil, wire.NoFiles, err
	}
	defer unix.Close(pair[1])
	if status, err = wire.NewSocket(pair[0]); err != nil {
		return nil, nil, wire.NoFiles, err
	}
	_ = status.Control(func(fd int) { err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSCRED, 1) })
	var ends [2]int
	if err == nil {
		err = unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK)
	}
	if err != nil {
		status.Close()
		return nil, nil, wire.NoFiles, err
	}
	defer unix.Close(ends[1])
	executed = os.NewFile(uintptr(ends[0]), "executed")

	files := make([]uintptr, microinit.BlockFD+1)
	for i := range files {
		files[i] = ^uintptr(0) // closed
	}
	for i, fd := range c.streams {
		files[i] = uintptr(fd)
	}
	files[microinit.StatusFD], files[microinit.StderrFD] = uintptr(pair[1]), files[2]
	files[microinit.ExecFD], files[microinit.BlockFD] = uintptr(ends[1]), uintptr(c.fds[0])
	pid, err := c.conn.spawn(files, c.ended)
	if err != nil {
		status.Close()
		executed.Close()
		return nil, nil, wire.NoProcess, err
	}
	c.mu.Lock()
	c.reaper = pid
	if c.killed {
		go c.killAll()
	}
	c.mu.Unlock()
	return status, executed, 0, nil
}

// listen follows the reports until the reaper has told the end, or is gone.
func (c *command) listen(status *wire.Socket, executed *os.File) (o outcome) {
	defer executed.Close()
	buf := make([]byte, microinit.ReportSize+1)
	recv := status.Recv
	for !o.ended {
		m, err := recv(buf)
		if errors.Is(err, unix.EAGAIN) {
			// Nothing came up to the end of executed: the command runs.
			c.tellStarted()
			recv = status.Recv
			continue
		}
		if err != nil {
			return o // the reaper is gone, and had not told an end
		}
		m.Close() // there should be none
		kind, value, err := microinit.ParseReport(m.Data)
		if err != nil {
			continue
		}
		switch kind {
		case microinit.Started:
			c.note(m.PID)
			// A report that it failed will be here by the end of executed.
			_, _ = executed.Read(make([]byte, 1))
			recv = status.TryRecv
			continue
		case microinit.Ended:
			o.ended, o.status = true, value
			if o.failure == 0 {
				c.tellStarted()
			}
		case microinit.NoExec:
			o.failure, o.errno = wire.NoExec, unix.Errno(value)
		case microinit.NoDir:
			o.failure, o.errno = wire.NoDir, unix.Errno(value)
		case microinit.NoLimit:
			o.failure, o.errno = wire.NoLimit, unix.Errno(value)
		case microinit.NoFork:
			o.failure, o.errno = wire.NoProcess, unix.Errno(value)
		case microinit.NoBlock:
			o.failure, o.errno = wire.NoCommand, unix.Errno(value)
		}
		recv = status.Recv
	}
	return o
}

// note keeps hold of the command's process.
func (c *command) note(pid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pid = pid
	c.pidfd, _ = unix.PidfdOpen(pid, 0)
	// Should its reaper be killed, it becomes our child.
	s := c.conn.server
	s.mu.Lock()
	s.watched[pid] = c.ended
	s.mu.Unlock()
}

func (c *command) tellStarted() {
	c.mu.Lock()
	told, pid, waited := c.started, c.pid, c.early
	c.started, c.early = true, nil
	c.mu.Unlock()
	if !told && pid != 0 {
		for _, e := range waited {
			c.signal(e.signal, e.group)
		}
		_ = c.conn.send(wire.Reply{Op: wire.Started, ID: c.request.ID, Value: uint32(pid)}) // see live
	}
}

// bury waits until nothing is left of the command, and kills what it left behind.
func (c *command) bury(o *outcome) (d death, left bool) {
	s := c.conn.server
	c.mu.Lock()
	reaper, pid := c.reaper, c.pid
	c.mu.Unlock()
	if o.ended && len(descendants.Children(reaper)) > 0 {
		left = len(descendants.Of(reaper)) > 0
		c.kill()
	}
	d = <-c.ended
	var own *death // the command's, if that became our child and ended at once
	if d.pid != reaper {
		first := d
		own, d = &first, <-c.ended
	}
	c.mu.Lock()
	c.reaper = 0
	c.mu.Unlock()
	if d.status.Exited() && (o.ended || o.failure != 0) {
		s.unwatch(pid, c.ended)
		return d, left
	}
	// Somebody in the container killed the reaper.
	switch {
	case o.ended || o.failure != 0: // after its last word
		s.unwatch(pid, c.ended)
	case own != nil || pid != 0 && s.adopt(pid):
		c.tellStarted()
		if own == nil {
			next := <-c.ended
			own = &next
		}
		d = *own
		o.status = uint32(d.status)
		left = len(s.strays()) > 0
	default:
		s.unwatch(pid, c.ended)
		o.failure, o.errno = wire.Lost, unix.ESRCH
	}
	s.killStrays()
	return d, left
}

// signal sends a signal to the command or its group, once that has been executed. It
// may run, and its output may be read, before its reaper's report was.
func (c *command) signal(sig unix.Signal, group bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.started {
		if len(c.early) < maxEarly {
			c.early = append(c.early, early{sig, group})
		}
		return
	}
	if c.pid <= 1 {
		return
	}
	if !group {
		if c.pidfd < 0 {
			_ = unix.Kill(c.pid, sig)
			return
		}
		_ = unix.PidfdSendSignal(c.pidfd, sig, nil, 0) // one that is gone needs none
		return
	}
	// The command leads its group, so the number is the group's for as long as the
	// command is not reaped.
	if c.pidfd < 0 || unix.PidfdSendSignal(c.pidfd, 0, nil, 0) == nil {
		_ = unix.Kill(-c.pid, sig)
	}
}

// kill kills the command with all its descendants. It does not wait.
func (c *command) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.killed {
		return
	}
	c.killed = true
	if c.reaper != 0 || c.pid != 0 {
		go c.killAll()
	}
}

// stubborn is how long a reaper may live with nothing below it.
const stubborn = 2 * time.Second

// killAll kills until nothing is left.
func (c *command) killAll() {
	pause := 200 * time.Microsecond
	var empty time.Time // since when nothing was found
	for {
		n := c.killOnce()
		if n > 0 || empty.IsZero() {
			empty = time.Now()
		}
		select {
		case <-c.gone:
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, 20*time.Millisecond)
		if time.Since(empty) > stubborn {
			c.mu.Lock()
			if c.reaper != 0 {
				_ = unix.Kill(c.reaper, unix.SIGKILL) // somebody keeps it from its work
			}
			c.mu.Unlock()
			empty = time.Time{}
		}
	}
}

func (c *command) killOnce() (n int) {
	s := c.conn.server
	s.killers <- struct{}{}
	defer func() { <-s.killers }()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	n, err := descendants.Kill(ctx, c.below)
	if err != nil {
		complain("kill a command: %v", err)
		n++ // whatever it was that did not end
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reaper != 0 {
		_ = unix.Kill(c.reaper, unix.SIGCONT)
	}
	return n
}

// below lists what belongs to the command.
func (c *command) below() []int {
	c.mu.Lock()
	reaper, pid := c.reaper, c.pid
	c.mu.Unlock()
	switch {
	case reaper != 0:
		return descendants.Of(reaper)
	case pid != 0:
		return descendants.Below([]int{pid})
	}
	return nil
}

func micros(t syscall.Timeval) uint64 { return uint64(t.Sec)*1e6 + uint64(t.Usec) }

func errnoOf(err error) unix.Errno {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return unix.EIO
}
