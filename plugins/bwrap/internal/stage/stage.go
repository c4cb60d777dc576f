// Package stage is the holder: the process that keeps one sandbox's mounts and
// starts bwrap in them, once for each command.
//
// The holder is the plugin's own binary under another argv[0]. It does its work
// in this package's init function and never reaches main: Go initialises
// packages that are ready in the order of their import paths, so nothing of grpc
// and protobuf has been initialised by then, which would cost some milliseconds
// for each sandbox. Therefore this package imports the standard library, x/sys,
// and of sdk only what does with little more.
//
// The plugin starts the holder in a user namespace, a mount namespace and a process
// namespace of its own, as uid 0 of that user namespace, which is an unprivileged uid
// of the host, and as the first process: whatever it started dies with it, however it
// ends, and what bwrap leaves behind becomes its child.
// For a sandbox the holder makes one more mount namespace, opens the trees it is
// asked to, pivots into a fresh root that holds nothing else of the host, and from
// then on only starts bwrap and waits for it. Asked to clear up, it goes back to
// where it was at its start, which is the end of the sandbox's mounts, and can take
// another sandbox: see [holder.clear]. When the socket ends, because the plugin
// closed it or died, it kills all that it started and ends too.
package stage

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/bwrap/internal/wire"
	"github.com/hutch-run/hutch/sdk/network/netns"
	"github.com/hutch-run/hutch/sdk/supervise"
)

func init() {
	if len(os.Args) == 0 || os.Args[0] != wire.HolderName {
		return
	}
	// bwrap dies with the thread that started it, so that must be one that stays:
	// the first one.
	runtime.LockOSThread()
	unix.CloseOnExec(wire.SocketFD)
	h := &holder{bwrap: -1}
	err := h.begin()
	if err == nil {
		err = h.serve()
	}
	end()
	if errors.Is(err, io.EOF) {
		os.Exit(0)
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", wire.HolderName, err)
	os.Exit(1)
}

// holder is the state of the one sandbox.
type holder struct {
	first *supervise.Socket // to the plugin that started it
	setup *wire.Setup       // nil when there is no sandbox
	bwrap int               // descriptor of the bwrap binary, -1 without a sandbox

	base       int          // descriptor of the mount namespace that it began in
	cpus       unix.CPUSet  // processors that it began with
	running    atomic.Int32 // commands that are being waited for
	mu         sync.Mutex   // held while a command is started, and while what nobody waits for is looked for
	persistent *persistent  // nil for a holder that ends with its plugin
}

// begin remembers what it is like without a sandbox.
func (h *holder) begin() (err error) {
	if h.base, err = unix.Open("/proc/self/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("open the mount namespace: %w", err)
	}
	if h.first, err = supervise.NewSocket(wire.SocketFD); err != nil {
		return fmt.Errorf("use the socket: %w", err)
	}
	if err := noCore(); err != nil {
		return fmt.Errorf("turn off core dumps: %w", err)
	}
	return unix.SchedGetaffinity(0, &h.cpus)
}

// noCore sets limits.NoCore, which that package explains, for all that this process starts: later the system call
// filter lets nobody change it.
func noCore() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &limit); err != nil {
		return err
	}
	limit.Max = min(limit.Max, 1)
	limit.Cur = limit.Max
	return unix.Setrlimit(unix.RLIMIT_CORE, &limit)
}

// clear is the end of the sandbox: of whatever still runs of it, and of its
// mounts. Nothing of it is left in this process but ids that only name things
// which are gone. It refuses while a command is being waited for: then the
// plugin has to end the holder itself.
//
// Only this thread is in the sandbox's mount namespace, since what makes that
// namespace gives the thread a root and its own working directory.
func (h *holder) clear() error {
	if n := h.running.Load(); n > 0 {
		return fmt.Errorf("%d commands have not ended", n)
	}
	end()
	if err := unix.Setns(h.base, unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("leave the sandbox's mounts: %w", err)
	}
	if err := unix.SchedSetaffinity(0, &h.cpus); err != nil {
		return fmt.Errorf("take back all processors: %w", err)
	}
	unix.Close(h.bwrap)
	h.setup, h.bwrap = nil, -1
	return nil
}

// serve answers requests until the plugin is gone, which is io.EOF, or something else ends it.
func (h *holder) serve() error {
	for {
		var req wire.Request
		fds, err := wire.Recv(h.first, &req)
		if err != nil {
			return err
		}
		if err := h.answer(h.first, &req, fds); err != nil {
			return err
		}
		if h.persistent != nil {
			return h.last()
		}
	}
}

// answer does what one request asks for and says what came of it. The error is that of the connection.
func (h *holder) answer(c *supervise.Socket, req *wire.Request, fds []int) (err error) {
	var reply *wire.Reply
	var give []int
	switch {
	case req.Setup != nil && h.setup == nil:
		filters := probe(req.Setup.Filtered)
		give, err = h.makeRoot(req.Setup, fds)
		if err = errors.Join(err, <-filters); err != nil {
			closeAll(give)
			give = nil
		}
		if err == nil && req.Setup.Persistent != nil {
			err = h.outlive(req.Setup.Persistent, fds)
		}
		reply = &wire.Reply{Ready: true}
	case req.Exec != nil && h.setup != nil:
		reply, give, err = h.spawn(c, req.Exec, fds)
	case req.PTY && h.setup != nil:
		return h.sendPTY(c)
	case req.Mount != nil && h.setup != nil && h.setup.Late:
		err = mount(req.Mount)
		reply = &wire.Reply{Ready: true}
	case req.Dial != 0 && h.setup != nil:
		reply, give = &wire.Reply{Dialled: true}, dial(req.Dial)
	case req.Clear && h.setup != nil && h.persistent == nil:
		err = h.clear()
		reply = &wire.Reply{Ready: true}
	case req.Join && h.persistent != nil:
		give, err = openAll(h.setup.Give)
		reply = &wire.Reply{Ready: true, State: h.persistent.state}
	default:
		err = errors.New("a request came out of turn")
	}
	closeAll(fds)
	if err != nil {
		reply = &wire.Reply{Err: err.Error()}
	}
	err = send(c, reply, give...)
	closeAll(give)
	return err
}

// probe looks whether the network of commands can be filtered, while the rest is made.
func probe(filtered bool) <-chan error {
	done := make(chan error, 1)
	if !filtered {
		close(done)
		return done
	}
	go func() {
		if err := netns.Probe(); err != nil {
			done <- fmt.Errorf(wire.NoFilter+": %w", err)
		}
		close(done)
	}()
	return done
}

func closeAll(fds []int) {
	for _, fd := range fds {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}
