package stage

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/bwrap/internal/wire"
	"github.com/hutch-run/hutch/sdk/supervise"
	"github.com/hutch-run/hutch/sdk/supervise/descendants"
)

// A sandbox that outlives its plugin has one holder for as long as it can: two of them would mount the same upper
// layer twice, which the kernel does not define. So the holder outlives the plugin, and later plugins reach it by a
// socket in the sandbox's directory. All of them may be connected at once.

// send replies to a plugin. One that does not read keeps the others waiting for a while only.
func send(plugin *supervise.Socket, reply *wire.Reply, fds ...int) error {
	if err := plugin.SetWriteDeadline(time.Now().Add(sendTime)); err != nil {
		return err
	}
	return wire.Send(plugin, reply, fds...)
}

// persistent is what a holder has besides that outlives its plugin.
type persistent struct {
	listener int
	file     int // that the socket is
	state    []byte

	// What follows is guarded by holder.mu.
	commands map[int]*supervise.Socket // by the pid of their bwrap
	ending   bool
}

// asked is what a plugin wants, or that it is gone.
type asked struct {
	by   *supervise.Socket // nil when the socket was removed
	req  wire.Request
	fds  []int
	gone bool
}

const (
	// sendTime bounds how long a plugin that does not read may keep the others waiting.
	sendTime = 5 * time.Second
	// lookTime is how often a holder looks whether its socket is still there: somebody may have removed everything by
	// hand.
	lookTime = 10 * time.Second
)

// outlive makes this holder a persistent one, which plugins can connect to from now on.
func (h *holder) outlive(l *wire.Persistent, fds []int) error {
	keep := &persistent{state: l.State, commands: map[int]*supervise.Socket{}}
	for _, k := range []struct {
		from int
		to   *int
	}{{l.Listen, &keep.listener}, {l.File, &keep.file}, {l.Slot, new(int)}} {
		if k.from < 0 {
			continue
		}
		if k.from >= len(fds) {
			return fmt.Errorf("a persistent setup came with %d descriptors", len(fds))
		}
		fd, err := unix.FcntlInt(uintptr(fds[k.from]), unix.F_DUPFD_CLOEXEC, 40) // see makeRoot for the number
		if err != nil {
			return err
		}
		*k.to = fd
	}
	// By us, so that clients learn our pid from the kernel.
	if err := unix.Listen(keep.listener, 64); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	debug.SetGCPercent(100)
	h.persistent = keep
	return nil
}

// last serves plugins until one of them ends the holder. Commands are all started here, by the first thread; see init.
func (h *holder) last() error {
	requests := make(chan asked)
	go h.listenTo(h.first, requests)
	go h.accept(requests)
	go func() {
		for h.reachable() {
			time.Sleep(lookTime)
		}
		requests <- asked{}
	}()
	for a := range requests {
		switch {
		case a.gone:
			go h.abandon(a.by)
		case a.by == nil, a.req.End:
			closeAll(a.fds)
			h.mu.Lock()
			// a client that waits for a command learns from the end of the connection that it was ended
			h.persistent.ending = true
			h.mu.Unlock()
			unix.Close(h.persistent.listener)
			return io.EOF
		default:
			if h.answer(a.by, &a.req, a.fds) != nil {
				a.by.Close() // it does not read any more; that it is gone comes from the other goroutine
			}
		}
	}
	return io.EOF
}

// reachable says whether the socket still lies somewhere. By its descriptor, because the directory that it lay in is
// closed to the holder's user.
func (h *holder) reachable() bool {
	var st unix.Stat_t
	return unix.Fstat(h.persistent.file, &st) != nil || st.Nlink > 0
}

// listenTo reads what one plugin asks.
func (h *holder) listenTo(c *supervise.Socket, requests chan<- asked) {
	for {
		a := asked{by: c}
		var err error
		if a.fds, err = wire.Recv(c, &a.req); err != nil {
			requests <- asked{by: c, gone: true}
			return
		}
		requests <- a
	}
}

// accept takes in plugins.
func (h *holder) accept(requests chan<- asked) {
	for {
		fd, _, err := unix.Accept4(h.persistent.listener, unix.SOCK_CLOEXEC)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ECONNABORTED):
			continue
		case err != nil:
			time.Sleep(time.Millisecond) // no descriptors: some will be given back
			continue
		}
		if !fromOutside(fd) {
			unix.Close(fd)
			continue
		}
		if plugin, err := supervise.NewSocket(fd); err == nil {
			go h.listenTo(plugin, requests)
		}
	}
}

// fromOutside reports whether the process that connected is not one of this sandbox's: those have a number in this
// process namespace. They cannot see the socket, unless somebody shows them the directory that it lies in.
func fromOutside(fd int) bool {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	return err == nil && cred.Pid == 0
}

// started notes whose command it is. h.mu is held.
func (l *persistent) started(c *supervise.Socket, pid int) { l.commands[pid] = c }

// reaped waits for the end of a command, has it reaped, sees to it that nothing of it is left, and reports whether its
// end is one that may be reported.
func (h *holder) reaped(pid int, reap func()) bool {
	for { // without reaping it: nobody may kill its number once it can be another's
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			return false // the holder is ending, and reaps everybody
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.persistent.ending {
		return false
	}
	reap()
	delete(h.persistent.commands, pid)
	// What outlived its bwrap is our child now.
	for _, child := range descendants.Children(os.Getpid()) {
		if h.persistent.commands[child] == nil {
			_ = unix.Kill(child, unix.SIGKILL)
			_, _ = syscall.Wait4(child, nil, syscall.WNOHANG, nil)
		}
	}
	return true
}

// abandon ends the commands of a plugin that is gone.
func (h *holder) abandon(c *supervise.Socket) {
	for {
		h.mu.Lock()
		left := 0
		for pid, by := range h.persistent.commands {
			if by != c {
				continue
			}
			left++
			// As in end: first the namespace's init, after which bwrap ends by itself.
			below := descendants.Children(pid)
			for _, child := range below {
				_ = unix.Kill(child, unix.SIGKILL)
			}
			if len(below) == 0 {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
		ending := h.persistent.ending
		h.mu.Unlock()
		if left == 0 || ending {
			break
		}
		time.Sleep(endRound)
	}
	c.Close()
}
