package holder

import (
	"bytes"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/bwrap/internal/wire"
	"github.com/hutch-run/hutch/sdk/network/netns"
	"github.com/hutch-run/hutch/sdk/supervise"
)

// Process is one command in the sandbox, with the bwrap around it.
type Process struct {
	*supervise.Child
	holder  *Holder
	id      uint64
	bwrap   int // pidfd of bwrap, -1 when it ended at once
	ended   chan *wire.Ended
	network []int    // the listeners of a filtered network, until Network takes them
	words   *os.File // what bwrap itself writes to its stderr

	mu    sync.Mutex
	stuck *time.Timer // kills bwrap when it hangs although its child shall be dead
}

// Result says how a command's bwrap ended; how the command did, its Child says.
type Result struct {
	// Bwrap is bwrap's own wait status. When the Child is Silent, bwrap failed before it ran anything, and Words say why.
	Bwrap syscall.WaitStatus
	Words string
	Usage wire.Ended
}

// Spawn starts bwrap with a pid 1 that waits for its command, see [supervise.Child.Command]; init is its path in the
// sandbox. With observe, a filter of system calls, the filter's listener comes over listener, and has to be served at
// once.
func (h *Holder) Spawn(init string, observe []byte, listener *os.File) (*Process, error) {
	child, status, err := supervise.Await()
	if err != nil {
		return nil, err
	}
	defer status.Close()
	words, complaints, err := os.Pipe()
	if err != nil {
		child.Finish()
		return nil, err
	}
	defer complaints.Close()
	h.mu.Lock()
	h.next++
	p := &Process{Child: child, holder: h, words: words, bwrap: -1, id: h.next, ended: make(chan *wire.Ended, 1)}
	h.waiting[p.id] = p.ended // before the question: the end may overtake the answer
	h.mu.Unlock()
	// Fd takes a descriptor out of non-blocking mode, which bwrap would inherit.
	fds := []int{int(complaints.Fd()), int(status.Fd())}
	if len(observe) > 0 {
		fds = append(fds, int(listener.Fd()))
	}
	a, err := h.question(&wire.Request{Exec: &wire.Exec{ID: p.id, Program: init, Observe: observe}}, fds)
	if err != nil {
		p.forget()
		return nil, err
	}
	if len(a.fds) > 0 {
		p.bwrap, p.network = a.fds[0], a.fds[1:]
	}
	return p, nil
}

// Network returns the listeners of a filtered network, which are the caller's from now on.
func (p *Process) Network() (netns.Listeners, error) {
	fds := p.network
	p.network = nil
	return netns.FromFDs(fds)
}

// Kill kills the command and every process in its namespace, at once. The error is always nil.
func (p *Process) Kill() error {
	_ = p.Child.Kill()
	p.KillInit()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stuck != nil {
		return nil
	}
	// Not bwrap at once: its child waits for bwrap before it asks the kernel to die with it.
	p.stuck = time.AfterFunc(SetupTimeout, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.bwrap >= 0 {
			_ = unix.PidfdSendSignal(p.bwrap, unix.SIGKILL, nil, 0)
		}
	})
	return nil
}

// SetupTimeout bounds the time that bwrap has to come to its end after Kill. Tests change it.
var SetupTimeout = 5 * time.Second

// Wait returns how the command ended, when all its processes are gone.
func (p *Process) Wait() (*Result, error) {
	defer p.forget()
	var ended *wire.Ended
	select {
	case ended = <-p.ended:
	case <-p.holder.gone:
		select { // the last word may have come together with the end
		case ended = <-p.ended:
		default:
			_ = p.Kill() // should anything be left
			return nil, p.holder.goneError()
		}
	}
	if syscall.WaitStatus(ended.Status).Signaled() { // its pid 1 lives on until it reports something, or for good
		if p.Init() != 0 {
			p.KillInit()
		} else {
			p.Deafen()
		}
	}
	select {
	case <-p.Over():
	case <-time.After(SetupTimeout):
		// Something holds the other end that no longer has a bwrap; it ends as soon as it reports itself.
	}
	p.Finish()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bwrap >= 0 {
		unix.Close(p.bwrap)
		p.bwrap = -1
	}
	if p.stuck != nil {
		p.stuck.Stop()
	}
	r := &Result{Bwrap: syscall.WaitStatus(ended.Status), Usage: *ended}
	if p.Silent() {
		r.Words = p.complaint()
	}
	return r, nil
}

// complaint reads what bwrap wrote to its stderr. All writers should be gone by
// now; the deadline is for one that is not.
func (p *Process) complaint() string {
	_ = p.words.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	buf := make([]byte, 4096)
	n, _ := io.ReadFull(p.words, buf)
	return string(bytes.TrimSpace(buf[:n]))
}

func (p *Process) forget() {
	p.Finish()
	p.words.Close()
	p.holder.mu.Lock()
	delete(p.holder.waiting, p.id)
	p.holder.mu.Unlock()
}
