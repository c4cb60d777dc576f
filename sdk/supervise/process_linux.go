package supervise

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/supervise/descendants"
	"github.com/hutch-run/hutch/sdk/supervise/microinit"
)

// Group is a set of processes kept by the kernel. *limits.Group is one.
type Group interface {
	Start(cmd *exec.Cmd) error      // start cmd inside it
	Kill(ctx context.Context) error // kill all of it and wait until it is empty
	PIDs() ([]int, error)
}

// Rlimit is one resource limit that a command gets, soft and hard alike.
type Rlimit = microinit.Rlimit

// killTime bounds the killing itself: longer than that takes only a process that hangs inside the kernel.
const killTime = 10 * time.Second

// aLongTimeAgo is a deadline that has passed.
var aLongTimeAgo = time.Unix(1, 0)

// Options say how a command is started and ended.
type Options struct {
	// Grace is the time from SIGTERM to SIGKILL; 0 means DefaultGrace, below 0 none.
	Grace time.Duration
	// Group, where there is one, must hold nothing but this command. The init above the command is one of its processes.
	Group Group
	// Rlimits are set on the command and on nothing else.
	Rlimits []Rlimit
	// Terminal, where there is one, becomes the controlling terminal and all three streams. Its slave end is closed in
	// this process once the command has it.
	Terminal *Terminal
}

// Process is a started command. Its methods are safe for concurrent use; Wait may be called more than once.
type Process struct {
	cmd     *exec.Cmd // the init above the command
	child   *Child
	o       Options
	pid     int
	started time.Time
	done    chan struct{}
	result  Result // valid when done is closed

	mu      sync.Mutex
	over    bool  // the init has ended
	stopped error // why it is being ended; nil before
	killed  bool
	killErr error
}

// Start starts cmd as the leader of its own session, below an init that ends it, with all that it started, when this
// process dies. It takes cmd over: of its fields only those that were set before mean anything to the caller
// afterwards, and its methods are not to be called. The command gets its three streams and no other descriptor. An
// error means that nothing runs; what exec reports, os.ErrNotExist and os.ErrPermission, can be distinguished.
func Start(cmd *exec.Cmd, o Options) (*Process, error) {
	if o.Grace == 0 {
		o.Grace = DefaultGrace
	}
	p := &Process{cmd: cmd, o: o, done: make(chan struct{})}
	if err := p.launch(); err != nil {
		return nil, err
	}
	go p.reap()
	go p.child.Assist(p.done)
	return p, nil
}

// launch turns cmd into the init above the command. It is changed in place, because the pipes that its owner may have
// asked for depend on it.
func (p *Process) launch() error {
	cmd, path := p.cmd, p.cmd.Path
	if cmd.Err != nil {
		return cmd.Err
	}
	if len(cmd.ExtraFiles) > 0 {
		return errors.New("start process: a command gets no descriptors but its streams")
	}
	argv, dir := cmd.Args, cmd.Dir
	if len(argv) == 0 {
		argv = []string{path}
	}
	if dir == "" {
		dir = "."
	}
	args, err := microinit.Args(p.o.Terminal != nil, dir, []string{path}, cmd.Environ(), argv)
	if err != nil {
		return fmt.Errorf("start %s: %w", path, err)
	}
	image, err := Image(p.o.Rlimits, true)
	if err != nil {
		return fmt.Errorf("start %s: %w", path, err)
	}
	defer image.Close()
	child, files, err := Prepare(args)
	if err != nil {
		return err
	}
	defer files.Close()
	const imageFD = microinit.BlockFD + 1
	cmd.ExtraFiles = make([]*os.File, imageFD-2)
	cmd.ExtraFiles[microinit.StatusFD-3], cmd.ExtraFiles[microinit.ExecFD-3] = files.Status, files.Exec
	cmd.ExtraFiles[microinit.BlockFD-3], cmd.ExtraFiles[imageFD-3] = files.Block, image
	cmd.Path, cmd.Args = fmt.Sprintf("/proc/self/fd/%d", imageFD), []string{"hutch-init"}
	cmd.Env, cmd.Dir = []string{}, ""
	if t := p.o.Terminal; t != nil {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = t.Slave, t.Slave, t.Slave
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	// Out of reach of signals that are meant for this process's group, and of a terminal's keys.
	cmd.SysProcAttr.Setsid = true
	start := cmd.Start
	if p.o.Group != nil {
		start = func() error { return p.o.Group.Start(cmd) }
	}
	p.started, p.child = time.Now(), child
	err = start()
	if p.o.Terminal != nil {
		p.o.Terminal.Slave.Close() // or the end of the last program on it would never be seen
	}
	files.Close()
	if err != nil {
		child.Finish()
		return fmt.Errorf("start the init above %s: %w", path, err)
	}
	<-child.Started()
	if child.Executed() {
		p.pid = child.PID()
		return nil
	}
	_ = cmd.Wait()
	child.Finish()
	switch kind, errno := child.Failure(); kind {
	case 0:
		return fmt.Errorf("start %s: its init ended before it had started it: %v", path, cmd.ProcessState)
	case microinit.NoExec:
		return &fs.PathError{Op: "start", Path: path, Err: errno}
	case microinit.NoDir:
		return &fs.PathError{Op: "chdir", Path: dir, Err: errno}
	default:
		return fmt.Errorf("start %s: %s: %w", path, FailureText(kind), errno)
	}
}

// Image returns a sealed descriptor of the program microinit, to be executed by its path below /proc/self/fd.
func Image(rlimits []Rlimit, tied bool) (*os.File, error) {
	image, err := microinit.Image(microinit.Options{Limits: rlimits, Tied: tied})
	if err != nil {
		return nil, err
	}
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate("hutch-init", flags|unix.MFD_EXEC)
	if err == unix.EINVAL { // a kernel to which all are executable
		fd, err = unix.MemfdCreate("hutch-init", flags)
	}
	if err != nil {
		return nil, fmt.Errorf("load the init: %w", err)
	}
	f := os.NewFile(uintptr(fd), "hutch-init")
	if _, err = f.Write(image); err == nil {
		// Not readable, so that the kernel makes those who execute it untraceable from their first instruction on.
		err = f.Chmod(0o111)
	}
	if err == nil {
		const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("load the init: %w", err)
	}
	return f, nil
}

// reap waits until the init has ended, and with it everything below it, and gathers how the command did.
func (p *Process) reap() {
	init := p.cmd.Process.Pid
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, init, &info, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT, nil)
		if err == nil && info.Code == cldStopped {
			time.Sleep(StopTime)
			_ = unix.Kill(init, unix.SIGCONT)
		} else if err != unix.EINTR {
			break
		}
	}
	p.mu.Lock()
	p.over = true
	p.mu.Unlock()
	waitErr := p.cmd.Wait()
	var exit *exec.ExitError
	if errors.As(waitErr, &exit) { // which says that the init killed something, or was killed
		waitErr = nil
	}
	p.child.Finish()
	left, groupErr := p.sweep()
	r := Result{Code: 255, Killed: left || p.cmd.ProcessState.ExitCode() == 1}
	r.Usage.User, r.Usage.Sys = p.cmd.ProcessState.UserTime(), p.cmd.ProcessState.SystemTime()
	if ru, ok := p.cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		r.Usage.MaxRSS = int64(ru.Maxrss) << 10
	}
	r.Usage.Wall = time.Since(p.started)
	var err error
	if ws, ok := p.child.Status(); ok {
		r.setStatus(ws)
	} else if p.o.Group != nil && groupErr == nil { // which was killed as a whole, and is empty
		r.setStatus(syscall.WaitStatus(syscall.SIGKILL))
	} else {
		err = fmt.Errorf("the init above process %d was killed (%v), so what became of its descendants is unknown",
			p.pid, p.cmd.ProcessState)
	}
	p.mu.Lock()
	r.Stopped, r.Killed, r.Err = p.stopped, r.Killed || p.killed, errors.Join(err, waitErr, groupErr, p.killErr)
	p.mu.Unlock()
	p.result = r
	close(p.done)
}

// cldStopped is CLD_STOPPED of waitid(2).
const cldStopped = 5

// sweep kills what is left in the group after the init: something, when that was killed before its time.
func (p *Process) sweep() (left bool, err error) {
	if p.o.Group == nil {
		return false, nil
	}
	pids, err := p.o.Group.PIDs()
	if len(pids) == 0 && err == nil {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), killTime)
	defer cancel()
	return len(pids) > 0, p.o.Group.Kill(ctx)
}

// Pid is the process id of the command, and of its process group.
func (p *Process) Pid() int { return p.pid }

// Signal sends sig to the process group of the command. After the end it says os.ErrProcessDone.
func (p *Process) Signal(sig syscall.Signal) error {
	err := p.child.SignalGroup(sig)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// SignalCommand sends sig to the command alone. After the end it says os.ErrProcessDone.
func (p *Process) SignalCommand(sig syscall.Signal) error { return p.child.Signal(sig) }

// Done is closed when the command has ended and nothing of its tree is left.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait returns when the command has ended and nothing of its tree is left; what the command leaves behind is killed at
// once. When ctx ends first the whole tree is asked to end by SIGTERM, and is killed after the grace; the result's
// Stopped is then context.Cause(ctx).
func (p *Process) Wait(ctx context.Context) Result {
	select {
	case <-p.done:
		return p.result
	case <-ctx.Done():
	}
	p.end(context.Cause(ctx))
	<-p.done
	return p.result
}

// end ends the whole tree. Only the first caller's reason counts.
func (p *Process) end(why error) {
	p.mu.Lock()
	first := p.stopped == nil && !p.over
	if first {
		p.stopped = why
	}
	p.mu.Unlock()
	if !first {
		return
	}
	if p.o.Grace > 0 {
		// What cannot be asked to end is killed all the same, so an error here is no news.
		_ = descendants.Signal(p.child.Below, syscall.SIGTERM)
		_ = descendants.Signal(p.child.Below, syscall.SIGCONT) // so that one that is stopped gets it
		if p.ended(p.o.Grace) {
			return
		}
	}
	p.mu.Lock()
	p.killed = true
	p.mu.Unlock()
	_ = p.child.Kill()
	if !p.ended(3 * killTime) {
		err := fmt.Errorf("processes of the command do not end: %v", p.child.Below())
		p.mu.Lock()
		p.killErr = err
		p.mu.Unlock()
		p.child.KillInit() // so that Wait returns
	}
}

// ended waits for the end.
func (p *Process) ended(within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-p.done:
		return true
	case <-timer.C:
		return false
	}
}

// Result says how a command ended.
type Result struct {
	Status  syscall.WaitStatus // that of the command; Code and Signal say the same
	Code    int                // 0-255; 128+n after signal n
	Signal  syscall.Signal     // 0 when it exited by itself
	Stopped error              // why Wait ended it: context.Cause of its context; nil when it ended by itself
	Killed  bool               // SIGKILL was sent: to the command after its grace, or to something it left behind
	Usage   Usage
	Err     error // the end could not be observed, something could not be killed, or a stream not be copied
}

// Usage is what the command used, with all its descendants.
type Usage struct {
	Wall      time.Duration
	User, Sys time.Duration
	MaxRSS    int64 // bytes, of the largest single process
}

func (r *Result) setStatus(ws syscall.WaitStatus) {
	r.Status, r.Code = ws, ws.ExitStatus()
	if ws.Signaled() {
		r.Signal, r.Code = ws.Signal(), 128+int(ws.Signal())
	}
}
