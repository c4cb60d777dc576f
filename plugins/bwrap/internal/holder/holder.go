// Package holder is the plugin's end of the holder process: it starts one for a
// sandbox, has it make the sandbox's mounts, and runs commands through it. The
// process itself is package stage.
package holder

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/bwrap/internal/wire"
	"github.com/hutch-run/hutch/sdk/network/loopback"
	"github.com/hutch-run/hutch/sdk/supervise"
)

// Identity says what a holder is to the host.
type Identity struct {
	// UIDs and GIDs are the maps of the holder's user namespace. Id 0 must be
	// mapped: it is the holder itself.
	UIDs, GIDs []syscall.SysProcIDMap
	// Privileged says that the plugin runs as root, so that the holder can be rid
	// of all supplementary groups.
	Privileged bool
}

// Holder is a running holder process. Its methods may be called concurrently.
type Holder struct {
	process *os.Process // nil when another plugin started it
	pid     int
	pidfd   int // of a persistent holder, else -1
	socket  *supervise.Socket
	stderr  words

	nsOnce  sync.Once
	ns      *os.File // the user namespace
	nsErr   error
	closing sync.Once
	ask     sync.Mutex    // one question at a time
	answers chan answer   // to the question that is out
	gone    chan struct{} // closed when the holder is no more
	mu      sync.Mutex    // guards what follows
	next    uint64        // id of the next command
	waiting map[uint64]chan *wire.Ended
}

// closeTimeout bounds the time that a holder has for killing its commands.
const closeTimeout = 5 * time.Second

type answer struct {
	reply wire.Reply
	fds   []int
}

// Start starts a holder. Close ends it.
func Start(id Identity) (*Holder, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	h, err := launch(id, []string{wire.HolderName}, w, nil)
	if err != nil {
		r.Close()
		return nil, err
	}
	h.stderr = newPiped(r)
	go h.receive()
	return h, nil
}

// launch starts the process. What it writes to its stderr, and what it has on top of its environment, is up to the
// caller, who begins to receive.
func launch(id Identity, argv []string, stderr *os.File, env []string) (*Holder, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make the holder's socket: %w", err)
	}
	far := os.NewFile(uintptr(pair[1]), "holder")
	defer far.Close()
	near, err := supervise.NewSocket(pair[0])
	if err != nil {
		return nil, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		near.Close()
		return nil, err
	}
	defer null.Close()
	sys := &syscall.SysProcAttr{
		// It is the first process of a process namespace: the kernel kills all that it started when it is killed itself. A
		// bwrap alone would leave its child waiting for good, killed before it has said to the child that it may go on.
		Cloneflags:                 syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		UidMappings:                id.UIDs,
		GidMappings:                id.GIDs,
		GidMappingsEnableSetgroups: id.Privileged,
		Credential:                 &syscall.Credential{Uid: 0, Gid: 0, NoSetGroups: !id.Privileged},
		Setsid:                     true,
		// No PDEATHSIG: the end of its socket shows that the plugin is gone, and it
		// has to clean up after bwrap then.
	}
	p, err := os.StartProcess("/proc/self/exe", argv, &os.ProcAttr{
		Dir: "/",
		// one sandbox makes less than 1 MiB of garbage
		Env:   append([]string{"GOTRACEBACK=single", "GOGC=off", "GOMEMLIMIT=32MiB"}, env...),
		Files: []*os.File{null, null, stderr, far},
		Sys:   sys,
	})
	if err != nil {
		near.Close()
		return nil, fmt.Errorf("start the holder in a user namespace: %w", err)
	}
	h := newHolder(p.Pid, near)
	h.process = p
	return h, nil
}

func newHolder(pid int, socket *supervise.Socket) *Holder {
	return &Holder{
		pid: pid, pidfd: -1, socket: socket,
		answers: make(chan answer, 1), gone: make(chan struct{}), waiting: map[uint64]chan *wire.Ended{},
	}
}

// words are what a holder said on its stderr, once it is gone.
type words interface {
	wait()
	String() string
}

// PID returns the holder's process id on the host.
func (h *Holder) PID() int { return h.pid }

// Gone is closed when the holder is no more, for whatever reason.
func (h *Holder) Gone() <-chan struct{} { return h.gone }

// Setup has the holder make the sandbox's world and returns the descriptors of
// the directories in s.Give. It must be called first, and again only after Clear.
func (h *Holder) Setup(s *wire.Setup, fds []int) ([]*os.File, error) {
	a, err := h.question(&wire.Request{Setup: s}, fds)
	if err != nil {
		return nil, err
	}
	files := make([]*os.File, len(a.fds))
	for i, fd := range a.fds {
		files[i] = os.NewFile(uintptr(fd), s.Give[i])
	}
	return files, nil
}

// Mount makes a mount in a sandbox whose [wire.Setup] has Late. Commands that were started before see it.
func (h *Holder) Mount(m wire.Mount) error {
	_, err := h.question(&wire.Request{Mount: &m}, nil)
	return err
}

// Clear ends the sandbox: every command in it and its mounts. On success the
// holder is as it was at its start and can be given another sandbox; else it is
// only fit to be closed. Every [Process.Wait] must have returned.
func (h *Holder) Clear() error {
	late := time.AfterFunc(closeTimeout, func() { _ = h.process.Kill() })
	defer late.Stop()
	_, err := h.question(&wire.Request{Clear: true}, nil)
	return err
}

// PTY makes a terminal inside the sandbox and returns its two ends.
func (h *Holder) PTY() (master, slave *os.File, err error) {
	a, err := h.question(&wire.Request{PTY: true}, nil)
	if err != nil {
		return nil, nil, err
	}
	if len(a.fds) != 2 {
		return nil, nil, errors.New("the holder gave no terminal")
	}
	if err := unix.SetNonblock(a.fds[0], true); err != nil { // so that Close wakes a reader
		return nil, nil, err
	}
	return os.NewFile(uintptr(a.fds[0]), "/dev/ptmx"), os.NewFile(uintptr(a.fds[1]), a.reply.PTY), nil
}

// Dial connects to a port of the loopback of the commands that run, the newest first: see [loopback.Connect]. The
// connection is nil when nothing listens there.
func (h *Holder) Dial(port int) (net.Conn, error) {
	a, err := h.question(&wire.Request{Dial: port}, nil)
	if err != nil || len(a.fds) == 0 {
		return nil, err
	}
	return loopback.Conn(a.fds[0])
}

// Close ends the holder and every command in it, and returns when all are gone.
// Closing twice is fine.
func (h *Holder) Close() {
	h.closing.Do(func() {
		_ = h.socket.Control(func(fd int) { _ = unix.Shutdown(fd, unix.SHUT_WR) }) // the holder sees the end of its socket
		select {
		case <-h.gone:
		case <-time.After(closeTimeout):
			_ = h.process.Kill() // it hangs in a system call; what it started dies with it
			<-h.gone
		}
		if h.ns != nil {
			h.ns.Close()
		}
		h.socket.Close()
	})
}

// question sends one request and waits for its answer.
func (h *Holder) question(req *wire.Request, fds []int) (answer, error) {
	h.ask.Lock()
	defer h.ask.Unlock()
	if err := wire.Send(h.socket, req, fds...); err != nil {
		if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, os.ErrClosed) {
			<-h.gone
			return answer{}, h.goneError()
		}
		return answer{}, fmt.Errorf("talk to the holder: %w", err)
	}
	select {
	case a := <-h.answers:
		if a.reply.Err != "" {
			return answer{}, errors.New(a.reply.Err)
		}
		return a, nil
	case <-h.gone:
		return answer{}, h.goneError()
	}
}

func (h *Holder) goneError() error {
	if text := h.stderr.String(); text != "" {
		return fmt.Errorf("the sandbox's holder process is gone: %s", text)
	}
	return errors.New("the sandbox's holder process is gone")
}

// receive reads the holder's messages until it is gone.
func (h *Holder) receive() {
	defer close(h.gone)
	for {
		var reply wire.Reply
		fds, err := wire.Recv(h.socket, &reply)
		if err != nil {
			if !errors.Is(err, io.EOF) && h.process != nil {
				_ = h.process.Kill()
			}
			break
		}
		if reply.Ended == nil {
			h.answers <- answer{reply, fds}
			continue
		}
		h.mu.Lock()
		if c := h.waiting[reply.Ended.ID]; c != nil {
			c <- reply.Ended
		}
		h.mu.Unlock()
	}
	if h.process != nil {
		_, _ = h.process.Wait()
	}
	h.stderr.wait()
}

// piped are the last words that come through a pipe.
type piped struct {
	supervise.Tail
	done chan struct{}
}

func newPiped(r *os.File) *piped {
	p := &piped{done: make(chan struct{})}
	go func() {
		defer close(p.done)
		defer r.Close()
		_, _ = io.Copy(&p.Tail, r)
	}()
	return p
}

func (p *piped) wait() { <-p.done }

// UserNamespace returns a descriptor of the holder's user namespace, which stays
// the holder's.
func (h *Holder) UserNamespace() (int, error) {
	h.nsOnce.Do(func() {
		h.ns, h.nsErr = os.Open(fmt.Sprintf("/proc/%d/ns/user", h.pid))
	})
	if h.nsErr != nil {
		return -1, fmt.Errorf("open the holder's user namespace: %w", h.nsErr)
	}
	return int(h.ns.Fd()), nil
}
