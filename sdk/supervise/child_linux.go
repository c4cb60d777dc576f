package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/supervise/descendants"
	"github.com/hutch-run/hutch/sdk/supervise/microinit"
)

// Child is one command below its init (package microinit), no matter which process started that and where: it follows
// the init's reports, signals the command, and kills it with all that it started. Its methods are safe for concurrent
// use.
type Child struct {
	status   *Socket
	exec     *os.File      // the other end of executed, until the init has it; nil after that
	executed *os.File      // ends when the command has been executed, or never will be
	started  chan struct{} // closed likewise
	inited   chan struct{} // closed when the init has reported itself, or never will
	over     chan struct{} // closed when no more reports come
	ending   chan struct{} // closed when the command has ended or is to be killed

	mu      sync.Mutex
	reports map[microinit.Kind]uint32
	init    int // process ids as this process sees them, 0 while unknown
	pid     int
	initFD  int // pidfds of them, -1 while unknown
	pidfd   int
	ends    bool // ending is closed
}

// Files are what an init has to be started with, besides the streams: see package microinit.
type Files struct {
	Status *os.File // microinit.StatusFD
	Exec   *os.File // microinit.ExecFD
	Block  *os.File // microinit.BlockFD
}

// Close closes them; who started the init has to, or its end would not be seen.
func (f *Files) Close() {
	for _, file := range []*os.File{f.Status, f.Exec, f.Block} {
		if file != nil {
			_ = file.Close()
		}
	}
}

// Prepare makes the descriptors of an init that will execute a command, whose arguments are those of [microinit.Args],
// and begins to follow it. Finish releases the Child.
func Prepare(args []string) (*Child, *Files, error) {
	block, err := blockOf(args)
	if err != nil {
		return nil, nil, fmt.Errorf("prepare a command: %w", err)
	}
	c, status, err := Await()
	if err != nil {
		block.Close()
		return nil, nil, err
	}
	f := &Files{Status: status, Exec: c.exec, Block: block}
	c.exec = nil
	return c, f, nil
}

// blockOf returns what an init maps for its arguments.
func blockOf(args []string) (*os.File, error) {
	block, err := microinit.Block(append([]string{"init"}, args...))
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("command", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "command")
	if _, err := f.WriteAt(block, 0); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Await makes the descriptor of an init that waits for its command ([microinit.Options]), which is for
// [microinit.StatusFD], and begins to follow it. Finish releases the Child.
func Await() (*Child, *os.File, error) {
	c, status, err := open()
	if err != nil {
		return nil, nil, fmt.Errorf("prepare a command: %w", err)
	}
	go c.listen()
	return c, status, nil
}

// Command gives its command to an init that waits for one, once. The arguments are those of [microinit.Args].
func (c *Child) Command(args []string, stdin, stdout, stderr *os.File) error {
	block, err := blockOf(args)
	if err != nil {
		return err
	}
	defer block.Close()
	defer c.exec.Close()
	var fds []int
	for _, f := range []*os.File{block, stdin, stdout, stderr, c.exec} {
		fds = append(fds, int(f.Fd())) // and so out of non-blocking mode, which the command would inherit
	}
	err = c.status.Send([]byte{0}, fds...)
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return nil // the init has ended, or was killed, which its reports say
	}
	return err
}

func open() (*Child, *os.File, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	far := os.NewFile(uintptr(pair[1]), "status")
	status, err := NewSocket(pair[0])
	if err != nil {
		far.Close()
		return nil, nil, err
	}
	c := &Child{
		status: status, started: make(chan struct{}), inited: make(chan struct{}), over: make(chan struct{}),
		ending:  make(chan struct{}),
		reports: map[microinit.Kind]uint32{}, initFD: -1, pidfd: -1,
	}
	cerr := status.Control(func(fd int) { err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSCRED, 1) })
	if err = errors.Join(cerr, err); err == nil {
		c.executed, c.exec, err = os.Pipe()
	}
	if err != nil {
		_ = status.Close()
		_ = far.Close()
		return nil, nil, err
	}
	_ = c.exec.Fd() // and so blocking, as the init expects
	return c, far, nil
}

// listen collects the reports.
func (c *Child) listen() {
	defer close(c.over)
	open := true
	start := func() {
		if open {
			open = false
			close(c.started)
		}
	}
	defer start()
	defer c.tellInit()
	recv, buf := c.status.Recv, make([]byte, microinit.ReportSize+1)
	for {
		m, err := recv(buf)
		recv = c.status.Recv
		if errors.Is(err, unix.EAGAIN) {
			start() // nothing came up to the end of executed: the command runs
			continue
		}
		if err != nil {
			return
		}
		m.Close() // there should be no descriptors
		kind, value, err := microinit.ParseReport(m.Data)
		if err != nil {
			continue
		}
		c.note(kind, value, m.PID)
		switch kind {
		case microinit.Init:
			c.tellInit()
		case microinit.Started:
			// A report that it failed will be here by the end of executed.
			_, _ = c.executed.Read(make([]byte, 1))
			recv = c.status.TryRecv
		case microinit.Ended:
			start()
		}
	}
}

// tellInit closes inited; only listen calls it.
func (c *Child) tellInit() {
	select {
	case <-c.inited:
	default:
		close(c.inited)
	}
}

// AwaitInit waits until the init has reported itself, and returns its process id: 0 when it never will.
func (c *Child) AwaitInit() int {
	<-c.inited
	return c.Init()
}

// note keeps a report, and hold of the process it is about.
func (c *Child) note(kind microinit.Kind, value uint32, pid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reports[kind] = value
	switch kind {
	case microinit.Ended:
		c.end()
	case microinit.Init:
		c.init = pid
		c.initFD, _ = unix.PidfdOpen(pid, 0)
	case microinit.Started:
		c.pid = pid
		c.pidfd, _ = unix.PidfdOpen(pid, 0)
	}
}

// Started is closed when the command has been executed, or when it is clear that it never will be; see Executed.
func (c *Child) Started() <-chan struct{} { return c.started }

// Over is closed when the init reports nothing more, because it has ended or been killed.
func (c *Child) Over() <-chan struct{} { return c.over }

// Executed says, once Started is closed, whether the command itself ever ran.
func (c *Child) Executed() bool {
	kind, _ := c.Failure()
	_, started := c.Report(microinit.Started)
	return started && kind == 0
}

// Report returns the value of a report, if it came.
func (c *Child) Report(kind microinit.Kind) (value uint32, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	value, ok = c.reports[kind]
	return value, ok
}

// failures says what each kind of failure kept from being done.
var failures = map[microinit.Kind]string{
	microinit.NoExec: "execute the command", microinit.NoDir: "enter the command's directory",
	microinit.NoLimit: "set the command's limits", microinit.NoFork: "start a process",
	microinit.NoBlock: "read the command",
}

// Failure says why the command was never executed; the kind is 0 without a reason.
func (c *Child) Failure() (microinit.Kind, syscall.Errno) {
	for kind := range failures {
		if errno, ok := c.Report(kind); ok {
			return kind, syscall.Errno(errno)
		}
	}
	return 0, 0
}

// FailureText says what a kind of failure kept from being done, as in "set the command's limits".
func FailureText(kind microinit.Kind) string { return failures[kind] }

// Status is the command's wait status, if it was reported.
func (c *Child) Status() (ws syscall.WaitStatus, ok bool) {
	value, ok := c.Report(microinit.Ended)
	return syscall.WaitStatus(value), ok
}

// Silent says that not even the init itself has reported.
func (c *Child) Silent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.reports) == 0
}

// Init is the process id of the init, 0 while unknown.
func (c *Child) Init() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.init
}

// PID is the process id of the command, and of its process group, 0 while unknown.
func (c *Child) PID() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pid
}

// Signal sends a signal to the command itself, once it has Started. One that is gone gets none.
func (c *Child) Signal(sig syscall.Signal) error { return c.signal(sig, false) }

// SignalGroup sends a signal to the command and the others in its process group, likewise.
func (c *Child) SignalGroup(sig syscall.Signal) error { return c.signal(sig, true) }

func (c *Child) signal(sig syscall.Signal, group bool) error {
	if sig < 1 || sig > 64 {
		return fmt.Errorf("invalid signal %d", sig)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pidfd < 0 || c.pid <= 1 {
		return os.ErrProcessDone
	}
	if group {
		// The command leads its group, so the number is the group's for as long as the command is not reaped.
		if unix.PidfdSendSignal(c.pidfd, 0, nil, 0) != nil {
			return os.ErrProcessDone
		}
		return unix.Kill(-c.pid, sig)
	}
	err := unix.PidfdSendSignal(c.pidfd, sig, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// end needs c.mu.
func (c *Child) end() {
	if !c.ends {
		c.ends = true
		close(c.ending)
	}
}

// Kill has the init kill the command and all that it started, at once, also when the init is only about to be started.
// It does not wait. The error is always nil.
func (c *Child) Kill() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end()
	_ = c.status.Control(func(fd int) { _ = unix.Shutdown(fd, unix.SHUT_WR) })
	return nil
}

// assistAfter is how long an init may take to kill what a command has left before it gets help.
const assistAfter = 50 * time.Millisecond

// StopTime is how long an init may be stopped before its parent continues it: a command of the same user may have
// stopped it so that its end is not seen, but Assist does so too.
const StopTime = time.Second

// Assist helps an init that is not pid 1 to kill what forks faster than the init kills it. It returns when gone is
// closed, which says that the init has ended. A process that is stopped forks no more, so it stops everything below the
// init before it kills anything; the init, which kills only its own children, is stopped meanwhile, because what it
// kills makes room for others to fork.
func (c *Child) Assist(gone <-chan struct{}) {
	select {
	case <-c.ending:
	case <-gone:
		return
	}
	timer := time.NewTimer(assistAfter)
	defer timer.Stop()
	for {
		select {
		case <-gone:
			return
		case <-timer.C:
		}
		ctx, cancel := context.WithTimeout(context.Background(), killTime)
		c.signalInit(unix.SIGSTOP)
		_, _ = descendants.Kill(ctx, c.Below) // what does not end is tried again
		c.signalInit(unix.SIGCONT)
		cancel()
		timer.Reset(assistAfter)
	}
}

// Below lists the command and all its descendants. Those that lost their init are found below the command only.
func (c *Child) Below() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	// A number that may have been given to another process while its list was read is not looked at.
	if c.init > 1 && c.initFD >= 0 {
		if list := descendants.Of(c.init); unix.PidfdSendSignal(c.initFD, 0, nil, 0) == nil {
			return list
		}
	}
	if c.pid > 1 && c.pidfd >= 0 {
		if list := descendants.Below([]int{c.pid}); unix.PidfdSendSignal(c.pidfd, 0, nil, 0) == nil {
			return list
		}
	}
	return nil
}

// KillInit kills the init itself, and with pid 1 its namespace. What is below another is left to the next reaper.
func (c *Child) KillInit() { c.signalInit(unix.SIGKILL) }

func (c *Child) signalInit(sig unix.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.initFD >= 0 {
		_ = unix.PidfdSendSignal(c.initFD, sig, nil, 0) // one that has ended needs none
	}
}

// Deafen ends the reports although somebody may still hold their other end.
func (c *Child) Deafen() {
	_ = c.status.Control(func(fd int) { _ = unix.Shutdown(fd, unix.SHUT_RDWR) })
}

// Finish releases the descriptors, when the init has ended or was never started. What was reported stays.
func (c *Child) Finish() {
	c.Deafen()
	_ = c.executed.SetReadDeadline(aLongTimeAgo)
	<-c.over
	_ = c.status.Close()
	_ = c.executed.Close()
	if c.exec != nil {
		_ = c.exec.Close()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, fd := range []*int{&c.initFD, &c.pidfd} {
		if *fd >= 0 {
			unix.Close(*fd)
			*fd = -1
		}
	}
	c.init, c.pid = 0, 0
}
