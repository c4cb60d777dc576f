package holder

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/bwrap/internal/wire"
	"github.com/hutch-run/hutch/sdk/supervise"
	"github.com/hutch-run/hutch/sdk/supervise/descendants"
)

// ErrNobody says that no holder listens in a directory.
var ErrNobody = errors.New("no holder is there")

// ErrOther says that the holder does not understand this plugin: it is of another version.
var ErrOther = errors.New("the sandbox's holder is of another version of this backend")

// logName is the file in a sandbox's directory that a persistent holder's last words go to.
const logName = "holder.log"

// Persistent is what a holder needs to outlive the plugin that starts it. Close gives back what the holder has by then.
type Persistent struct {
	Dir    *os.File // the sandbox's directory
	Listen *os.File // a bound socket in it
	File   int      // a descriptor of its file, for nothing but to see whether it was removed
}

// StartPersistent starts a holder that outlives this process, once it got a setup with [wire.Persistent]. dir is the
// sandbox's own directory, private to the user; the caller sees to it that no two processes do this at once. marks are
// arguments that everybody sees and that mean nothing.
func StartPersistent(id Identity, dir string, marks ...string) (h *Holder, l *Persistent, err error) {
	l = &Persistent{File: -1}
	if l.Dir, err = os.Open(dir); err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			l.Close()
		}
	}()
	path := filepath.Join(dir, wire.SocketName)
	if l.Listen, err = supervise.Bind(path); err != nil {
		return nil, nil, err
	}
	if l.File, err = unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err != nil {
		return nil, nil, fmt.Errorf("open %s: %w", path, err)
	}
	// Not a pipe: the first thing it said after this process is gone would kill it.
	log, err := os.OpenFile(filepath.Join(dir, logName), os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer log.Close()
	h, err = launch(id, append([]string{wire.HolderName}, marks...), log, nil)
	if err != nil {
		return nil, nil, err
	}
	h.pidfd, _ = unix.PidfdOpen(h.pid, 0)
	h.stderr = logWords(filepath.Join(dir, logName))
	go h.receive()
	return h, l, nil
}

// Close closes what the holder has been given.
func (l *Persistent) Close() {
	l.Dir.Close()
	if l.Listen != nil {
		l.Listen.Close()
	}
	if l.File >= 0 {
		unix.Close(l.File)
		l.File = -1
	}
}

// Join connects to the persistent holder in dir and returns its state and the directories of its setup. The error is
// [ErrNobody] without one, and [ErrOther], with a holder that can be killed, when it does not understand.
func Join(dir string) (h *Holder, state []byte, dirs []*os.File, err error) {
	fd, err := supervise.Connect(filepath.Join(dir, wire.SocketName), 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) {
		return nil, nil, nil, ErrNobody
	}
	if err != nil {
		return nil, nil, nil, err
	}
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		unix.Close(fd)
		return nil, nil, nil, err
	}
	socket, err := supervise.NewSocket(fd)
	if err != nil {
		return nil, nil, nil, err
	}
	h = newHolder(int(cred.Pid), socket)
	h.pidfd, _ = unix.PidfdOpen(h.pid, 0)
	h.stderr = logWords(filepath.Join(dir, logName))
	go h.receive()
	a, err := h.question(&wire.Request{Join: true}, nil)
	if err != nil {
		select {
		case <-h.gone:
			if !ended(h.pidfd, closeTimeout) { // else it was about to end
				return h, nil, nil, ErrOther
			}
			h.Leave()
			return nil, nil, nil, ErrNobody
		default:
			h.Leave()
			return nil, nil, nil, err
		}
	}
	for _, fd := range a.fds {
		dirs = append(dirs, os.NewFile(uintptr(fd), "of the sandbox"))
	}
	return h, a.reply.State, dirs, nil
}

// Leave ends the connection to a persistent holder, which ends the commands that were started over it.
func (h *Holder) Leave() {
	h.closing.Do(func() {
		h.socket.Close() // which ends receive, too
		if h.ns != nil {
			h.ns.Close()
		}
		if h.pidfd >= 0 {
			unix.Close(h.pidfd)
		}
	})
}

// Kill ends a persistent holder that does not understand End.
func (h *Holder) Kill() error {
	defer h.Leave()
	if h.pidfd >= 0 {
		_ = unix.PidfdSendSignal(h.pidfd, unix.SIGKILL, nil, 0)
	}
	if !ended(h.pidfd, closeTimeout) {
		return fmt.Errorf("the holder, pid %d, does not end", h.pid)
	}
	return nil
}

// End ends a persistent holder with all commands in it, no matter who started them, and returns when all are gone.
func (h *Holder) End() error {
	defer h.Leave()
	err := wire.Send(h.socket, &wire.Request{End: true})
	if ended(h.pidfd, closeTimeout) {
		return nil
	}
	if err == nil { // so it is the process of that number
		_ = unix.PidfdSendSignal(h.pidfd, unix.SIGKILL, nil, 0) // it hangs in a system call; what it started dies with it
	}
	if !ended(h.pidfd, closeTimeout) {
		return fmt.Errorf("the holder, pid %d, does not end", h.pid)
	}
	return nil
}

// ended waits for the end of a process; one that was gone before anybody looked has ended.
func ended(pidfd int, patience time.Duration) bool {
	if pidfd < 0 {
		return true
	}
	deadline := time.Now().Add(patience)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}},
			int(max(time.Until(deadline).Milliseconds(), 0)))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil || n > 0:
			return n > 0
		case !time.Now().Before(deadline):
			return false
		}
	}
}

// logWords are the last words of a persistent holder.
type logWords string

func (logWords) wait() {}

func (l logWords) String() string {
	b, err := os.ReadFile(string(l))
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(b[max(0, len(b)-8192):]))
}

// Inits lists the first processes of the namespaces of all commands, of every plugin.
func (h *Holder) Inits() (out []int) {
	for _, bwrap := range descendants.Children(h.pid) {
		out = append(out, descendants.Children(bwrap)...)
	}
	return out
}
