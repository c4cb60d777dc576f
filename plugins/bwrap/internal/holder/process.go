package holder

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/bwrap/internal/wire"
	"github.com/hutch-run/hutch/sdk/network/netns"
	"github.com/hutch-run/hutch/sdk/supervise/microinit"
)

// Process is one command in the sandbox, with the bwrap around it.
type Process struct {
	holder  *Holder
	id      uint64
	bwrap   int // pidfd of bwrap, -1 when it ended at once
	status  int // our end of the status socket, closed when reports is
	ended   chan *wire.Ended
	network []int    // the listeners of a filtered network, until Network takes them
	block   *os.File // closed to let the command go
	info    *os.File // where bwrap tells its child's pid, for a held command
	words   *os.File // what bwrap itself writes to its stderr
	// executed ends when the command has been executed, or never will be.
	executed *os.File

	started chan struct{} // closed when the command has been executed, or never will be
	reports chan struct{} // closed when no more reports come

	mu      sync.Mutex // guards what follows
	init    int        // pid of the namespace's first process, 0 while unknown
	initFD  int        // pidfd of it, -1 while unknown
	command int        // pid of the command, 0 while unknown
	exec    int        // pidfd of the command, -1 while unknown
	kinds   map[microinit.Kind]uint32
	killed  bool
	stuck   *time.Timer // kills bwrap when it hangs although its child shall be dead
}

// Result says how a command and its bwrap ended.
type Result struct {
	// Reports are what pid 1 reported; Ended is missing when pid 1 was killed or
	// never came to run.
	Reports map[microinit.Kind]uint32
	// Bwrap is bwrap's own wait status. When Reports is empty, bwrap failed before
	// it ran anything, and Words say why.
	Bwrap syscall.WaitStatus
	Words string
	Usage wire.Ended
}

// Exec starts a command: args are those of [microinit.Args], with the path of
// the init in front. With hold, the command waits until [Process.Release].
func (h *Holder) Exec(args []string, stdin, stdout, stderr *os.File, hold bool) (*Process, error) {
	block, err := microinit.Block(args)
	if err != nil {
		return nil, err
	}
	argv, err := unix.MemfdCreate("argv", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	defer unix.Close(argv)
	for off := 0; off < len(block); {
		n, err := unix.Pwrite(argv, block[off:], int64(off))
		if err != nil {
			return nil, fmt.Errorf("pass the command on: %w", err)
		}
		off += n
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(pair[1])
	if err := unix.SetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1); err != nil {
		unix.Close(pair[0])
		return nil, err
	}
	// Fd also takes the descriptors out of non-blocking mode, which the command would inherit.
	words, complaints, err := os.Pipe()
	if err != nil {
		unix.Close(pair[0])
		return nil, err
	}
	defer complaints.Close()
	executed, alive, err := os.Pipe()
	if err != nil {
		unix.Close(pair[0])
		words.Close()
		return nil, err
	}
	defer alive.Close()
	fds := []int{argv, int(stdin.Fd()), int(stdout.Fd()), int(stderr.Fd()), int(complaints.Fd()), pair[1], int(alive.Fd())}

	h.mu.Lock()
	h.next++
	p := &Process{
		holder: h, words: words, executed: executed, id: h.next, ended: make(chan *wire.Ended, 1), initFD: -1, exec: -1,
		started: make(chan struct{}), reports: make(chan struct{}), kinds: map[microinit.Kind]uint32{},
	}
	h.waiting[p.id] = p.ended // before the question: the end may overtake the answer
	h.mu.Unlock()

	if hold {
		r, w, err := os.Pipe()
		if err != nil {
			unix.Close(pair[0])
			p.forget()
			return nil, err
		}
		defer r.Close()
		p.block = w
		told, tell, err := os.Pipe()
		if err != nil {
			unix.Close(pair[0])
			p.Release()
			p.forget()
			return nil, err
		}
		defer tell.Close()
		p.info = told
		fds = append(fds, int(r.Fd()), int(tell.Fd()))
	}
	a, err := h.question(&wire.Request{Exec: &wire.Exec{ID: p.id, Program: args[0], Block: hold}}, fds)
	if err != nil {
		unix.Close(pair[0])
		p.Release()
		p.forget()
		return nil, err
	}
	p.bwrap = -1
	if len(a.fds) > 0 {
		p.bwrap, p.network = a.fds[0], a.fds[1:]
	}
	p.status = pair[0]
	go p.listen(pair[0])
	return p, nil
}

// Network returns the listeners of a filtered network, which are the caller's from now on.
func (p *Process) Network() (netns.Listeners, error) {
	fds := p.network
	p.network = nil
	return netns.FromFDs(fds)
}

// Release lets a held command go.
func (p *Process) Release() {
	if p.block != nil {
		p.block.Close()
	}
}

// Started is closed when the command has been executed, or when it has become
// clear that it never will be; see Executed.
func (p *Process) Started() <-chan struct{} { return p.started }

// Init returns the first process of the command's process namespace, 0 before that is known.
func (p *Process) Init() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.init
}

// Executed says, once Started is closed, whether the command itself ever ran.
func (p *Process) Executed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, kind := range []microinit.Kind{microinit.NoExec, microinit.NoDir, microinit.NoLimit, microinit.NoFork} {
		if _, failed := p.kinds[kind]; failed {
			return false
		}
	}
	_, started := p.kinds[microinit.Started]
	return started
}

// listen collects the reports of pid 1.
func (p *Process) listen(socket int) {
	defer close(p.reports)
	defer unix.Close(socket)
	open := true
	defer func() {
		if open {
			close(p.started)
		}
	}()
	wait := 0
	for {
		kind, value, pid, err := receive(socket, wait)
		switch {
		case errors.Is(err, unix.EAGAIN):
			// Nothing came up to the end of executed: the command runs.
			open = false
			close(p.started)
			wait = 0
			continue
		case err != nil:
			return
		}
		p.note(kind, value, pid)
		if kind == microinit.Started {
			// A report that it failed would be here by the end of executed.
			_, _ = p.executed.Read(make([]byte, 1))
			wait = unix.MSG_DONTWAIT
			continue
		}
		wait = 0
		if kind == microinit.Ended && open {
			open = false
			close(p.started)
		}
	}
}

// receive reads one report, and whose pid came with it.
func receive(socket, flags int) (kind microinit.Kind, value uint32, pid int, err error) {
	buf, oob := make([]byte, microinit.ReportSize+1), make([]byte, unix.CmsgSpace(unix.SizeofUcred))
	var n, oobn int
	for {
		n, oobn, _, _, err = unix.Recvmsg(socket, buf, oob, unix.MSG_CMSG_CLOEXEC|flags)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return 0, 0, 0, err
	}
	if n == 0 {
		return 0, 0, 0, io.EOF
	}
	if messages, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil && len(messages) > 0 {
		if cred, err := unix.ParseUnixCredentials(&messages[0]); err == nil {
			pid = int(cred.Pid)
		}
	}
	kind, value, err = microinit.ParseReport(buf[:n])
	return kind, value, pid, err
}

// note keeps a report, and hold of the process it is about.
func (p *Process) note(kind microinit.Kind, value uint32, pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kinds[kind] = value
	switch kind {
	case microinit.Init:
		p.init = pid
		p.initFD, _ = unix.PidfdOpen(pid, 0)
		if p.killed {
			p.kill()
		}
	case microinit.Started:
		p.command = pid
		p.exec, _ = unix.PidfdOpen(pid, 0)
	}
}

// Signal sends a signal to the command itself. A command that is gone gets none.
func (p *Process) Signal(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exec < 0 {
		return os.ErrProcessDone
	}
	err := unix.PidfdSendSignal(p.exec, s, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// SignalGroup sends a signal to the command and the others in its process group.
func (p *Process) SignalGroup(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exec < 0 || p.command <= 1 {
		return os.ErrProcessDone
	}
	// The command leads its group, so the number is the group's for as long as the
	// command is not reaped.
	if err := unix.PidfdSendSignal(p.exec, 0, nil, 0); err != nil {
		return err
	}
	return unix.Kill(-p.command, s)
}

// Kill kills the command and every process in its namespace, at once. The error is always nil.
func (p *Process) Kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.killed = true
	p.kill()
	return nil
}

// kill needs p.mu. A command whose pid 1 has not reported itself yet is killed
// when it does. Killing bwrap instead would leave its child behind: that one waits
// for bwrap before it asks the kernel to die with it.
func (p *Process) kill() {
	if p.initFD >= 0 {
		_ = unix.PidfdSendSignal(p.initFD, unix.SIGKILL, nil, 0)
	}
	if p.stuck != nil {
		return
	}
	p.stuck = time.AfterFunc(SetupTimeout, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.bwrap >= 0 {
			_ = unix.PidfdSendSignal(p.bwrap, unix.SIGKILL, nil, 0)
		}
	})
}

// SetupTimeout bounds the time that bwrap has to come to its end after Kill. Tests change it.
var SetupTimeout = 5 * time.Second

// Wait returns how the command ended, when all its processes are gone.
func (p *Process) Wait() (*Result, error) {
	defer p.forget()
	p.Release()
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
		p.mu.Lock()
		if p.initFD >= 0 {
			_ = unix.PidfdSendSignal(p.initFD, unix.SIGKILL, nil, 0)
		} else {
			_ = unix.Shutdown(p.status, unix.SHUT_RDWR)
		}
		p.mu.Unlock()
	}
	select {
	case <-p.reports:
	case <-time.After(SetupTimeout):
		// Something holds the other end that no longer has a bwrap; it ends as soon as
		// it reports itself.
		_ = unix.Shutdown(p.status, unix.SHUT_RDWR)
		<-p.reports
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, fd := range []*int{&p.initFD, &p.exec, &p.bwrap} {
		if *fd >= 0 {
			unix.Close(*fd)
			*fd = -1
		}
	}
	p.command, p.init = 0, 0
	if p.stuck != nil {
		p.stuck.Stop()
	}
	r := &Result{Reports: p.kinds, Bwrap: syscall.WaitStatus(ended.Status), Usage: *ended}
	if len(r.Reports) == 0 {
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
	p.words.Close()
	p.executed.Close()
	if p.info != nil {
		p.info.Close()
	}
	p.holder.mu.Lock()
	delete(p.holder.waiting, p.id)
	p.holder.mu.Unlock()
}

// InitPID returns the pid of a held command's namespace init. It waits until
// bwrap has made the namespace.
func (p *Process) InitPID() (int, error) {
	if p.info == nil {
		return 0, errors.New("the command is not held")
	}
	defer p.info.Close()
	// bwrap writes what it made and closes the descriptor when it is done. The pid in it is one of the holder's namespace.
	if said, err := io.Copy(io.Discard, io.LimitReader(p.info, 4096)); err != nil || said == 0 {
		return 0, errors.Join(errors.New("bwrap ended before it had made the namespaces"), err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", p.bwrap))
	if err != nil {
		return 0, fmt.Errorf("find bwrap: %w", err)
	}
	for line := range strings.Lines(string(info)) {
		if pid, ok := strings.CutPrefix(line, "Pid:"); ok {
			pid = strings.TrimSpace(pid)
			below, err := os.ReadFile("/proc/" + pid + "/task/" + pid + "/children")
			if err != nil {
				return 0, fmt.Errorf("find bwrap's child: %w", err)
			}
			if f := strings.Fields(string(below)); len(f) == 1 {
				return strconv.Atoi(f[0])
			}
		}
	}
	return 0, errors.New("bwrap ended before its command was in a cgroup")
}
