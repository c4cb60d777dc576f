// Package process runs a command as the leader of a process group or session of its own and makes sure that nothing of
// it is left when it is over: not the children, not those that forked twice, not those that made a session of their
// own.
//
//	p, err := process.Start(cmd, process.Options{Grace: 2 * time.Second, Group: group})
//	res := p.Wait(ctx) // when ctx ends: TERM, grace, KILL, and only then back
//
// With a Group (a cgroup, see package limits) the kernel itself knows the whole tree. Without one, on Linux, every
// command has a keeper: a second process of the same program which is the reaper of the command's orphans, and which
// ends them all when the host is gone. Elsewhere there is only the process group.
//
// The package also opens the FIFOs by which a host hands over standard streams, makes terminals, and tells a process
// that its host has died.
package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Group is a set of processes kept by the kernel. *limits.Group is one.
type Group interface {
	Start(cmd *exec.Cmd) error      // start cmd inside it, on the calling thread
	Kill(ctx context.Context) error // kill all of it and wait until it is empty
	PIDs() ([]int, error)
}

// DefaultGrace is the time between SIGTERM and SIGKILL when Options holds none.
const DefaultGrace = 2 * time.Second

// killTime bounds the killing itself: longer than that takes only a process that hangs inside the kernel.
const killTime = 10 * time.Second

// Options say how a command is started and ended.
type Options struct {
	// Grace is the time from SIGTERM to SIGKILL; 0 means DefaultGrace, below 0 none.
	Grace time.Duration
	// Group, where there is one, must hold nothing but this command.
	Group Group
	// Session gives the command its own session, not only a process group.
	Session bool
	// Terminal, where there is one, becomes the controlling terminal and all three streams. It implies Session. Its
	// slave end is closed in this process once the command has it.
	Terminal *Terminal
	// Terminate asks the command to end. When nil every process of the tree gets SIGTERM. A sandbox whose outer process
	// takes the inner ones with it gives a function here that reaches the inner ones.
	Terminate func() error
}

// tree is how the processes of one command are reached.
type tree interface {
	signal(sig syscall.Signal) error // to the leader's group
	terminate() error                // SIGTERM, and SIGCONT, to all
	kill(ctx context.Context) error  // SIGKILL to all, the leader included
}

// Process is a started command. Its methods are safe for concurrent use; Wait may be called more than once.
type Process struct {
	cmd     *exec.Cmd
	o       Options
	tree    tree // set by launch
	pid     int  // set by launch
	started time.Time
	done    chan struct{}
	result  Result // valid when done is closed

	mu      sync.Mutex
	reaped  bool  // the leader's number may belong to somebody else
	ending  bool  // somebody has begun to end it
	stopped error // why
	killed  bool
	killErr error
}

// Start starts cmd as the leader of its own process group, killed when this process dies. It takes cmd over: of its
// fields only those that were set before mean anything to the caller afterwards, and its methods are not to be called.
// An error means that nothing runs; what exec reports, os.ErrNotExist and os.ErrPermission, can be distinguished.
//
// With a Group the leader has the parent-death signal, PR_SET_PDEATHSIG, which the kernel sends when the thread that
// forked ends, not the process (golang/go#27505). Start therefore forks on a thread that belongs to this command alone
// and lives as long as it does. What the leader has started itself outlives a host that dies, until somebody sweeps the
// group. Without a Group the command has a keeper process, which ends all of it when the host dies; it costs one more
// start of this program.
func Start(cmd *exec.Cmd, o Options) (*Process, error) {
	if o.Grace == 0 {
		o.Grace = DefaultGrace
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	attr := cmd.SysProcAttr
	setDeathSignal(attr)
	if t := o.Terminal; t != nil {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = t.Slave, t.Slave, t.Slave
		attr.Setsid, attr.Setctty, attr.Ctty = true, true, 0
	} else if o.Session {
		attr.Setsid = true
	} else {
		attr.Setpgid = true
	}
	p := &Process{cmd: cmd, o: o, done: make(chan struct{})}
	if err := p.launch(); err != nil {
		return nil, err
	}
	return p, nil
}

// Pid is the process id of the leader, and of its process group.
func (p *Process) Pid() int { return p.pid }

// Signal sends sig to the process group of the leader. After the end it says os.ErrProcessDone.
func (p *Process) Signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return os.ErrProcessDone
	}
	if err := p.tree.signal(sig); err != nil {
		if errors.Is(err, syscall.ESRCH) || errors.Is(err, os.ErrProcessDone) {
			return os.ErrProcessDone
		}
		return fmt.Errorf("signal %s to process group %d: %w", sig, p.Pid(), err)
	}
	return nil
}

// Done is closed when the leader has ended and nothing of its tree is left.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait returns when the leader has ended and nothing of its tree is left; what the leader leaves behind is killed at
// once. When ctx ends first the whole tree is told to end by SIGTERM, and is killed after the grace; the result's
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
	first := !p.ending && !p.reaped
	if first {
		p.ending, p.stopped = true, why
	}
	p.mu.Unlock()
	if !first {
		return
	}
	if p.o.Grace > 0 {
		// What cannot be told to end is killed all the same, so an error here is no news.
		if p.o.Terminate != nil {
			_ = p.o.Terminate()
		} else {
			_ = p.tree.terminate()
		}
		grace := time.NewTimer(p.o.Grace)
		defer grace.Stop()
		select {
		case <-p.done:
			return
		case <-grace.C:
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), killTime)
	defer cancel()
	p.mu.Lock()
	p.killed = true
	p.mu.Unlock()
	if err := p.tree.kill(ctx); err != nil && !errors.Is(err, os.ErrProcessDone) && !errors.Is(err, syscall.ESRCH) {
		p.mu.Lock()
		p.killErr = errors.Join(p.killErr, err)
		p.mu.Unlock()
		_ = p.Signal(syscall.SIGKILL) // at least the leader, so that Wait returns
	}
}

// setReaped is called before the leader is reaped: from here on its number, and that of its group, may be given to
// somebody else.
func (p *Process) setReaped() {
	p.mu.Lock()
	p.reaped = true
	p.mu.Unlock()
}

// finish is called when the leader is reaped and its tree is gone, with what is known of its end.
func (p *Process) finish(r Result, err error) {
	r.Usage.Wall = time.Since(p.started)
	p.mu.Lock()
	r.Stopped, r.Killed, r.Err = p.stopped, r.Killed || p.killed, errors.Join(err, p.killErr)
	p.mu.Unlock()
	p.result = r
	close(p.done)
}

// closeSlave lets go of the command's side of the terminal, or the end of the last program on it would never be seen.
func (p *Process) closeSlave() {
	if p.o.Terminal != nil {
		p.o.Terminal.Slave.Close()
	}
}

// ignoreExit drops the error of cmd.Wait which only says that the exit code is not 0.
func ignoreExit(err error) error {
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil
	}
	return err
}

// Result says how a command ended.
type Result struct {
	Code    int            // 0-255; 128+n after signal n
	Signal  syscall.Signal // 0 when it exited by itself
	Core    bool           // it dumped core
	Stopped error          // why Wait ended it: context.Cause of its context; nil when it ended by itself
	Killed  bool           // SIGKILL was sent: to the leader after its grace, or to something it left behind
	Usage   Usage
	Err     error // the end could not be observed, something could not be killed, or a stream not be copied
}

// Usage is what the leader used, and of its descendants those it waited for.
type Usage struct {
	Wall      time.Duration
	User, Sys time.Duration
	MaxRSS    int64 // bytes, of the largest single process
}

func (r *Result) classify(state *os.ProcessState) {
	if state == nil {
		r.Code = 255
		return
	}
	r.Usage.User, r.Usage.Sys = state.UserTime(), state.SystemTime()
	if ru, ok := state.SysUsage().(*syscall.Rusage); ok {
		r.Usage.MaxRSS = int64(ru.Maxrss) * maxRSSUnit
	}
	if ws, ok := state.Sys().(syscall.WaitStatus); ok {
		r.setStatus(ws)
	}
}

func (r *Result) setStatus(ws syscall.WaitStatus) {
	if ws.Signaled() {
		r.Signal, r.Core = ws.Signal(), ws.CoreDump()
		r.Code = 128 + int(ws.Signal())
		return
	}
	r.Code = ws.ExitStatus()
}

// NotRunnable says why a program cannot be run, with the code that shells give.
type NotRunnable struct {
	Code int    // 126: it is there and cannot be executed; 127: it is not there
	Why  string // for a person
}

func (e *NotRunnable) Error() string { return e.Why }

// DefaultPath is where programs are looked up when a command was given no PATH.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Look finds the program of a command that sees the same files as this process: by
// the command's own PATH unless the name holds a slash, with relative names taken
// from dir. The error is a *NotRunnable.
func Look(name, path, dir string) (string, error) {
	if path == "" {
		path = DefaultPath
	}
	candidates := []string{name}
	if !strings.Contains(name, "/") {
		candidates = candidates[:0]
		for d := range strings.SplitSeq(path, ":") {
			candidates = append(candidates, filepath.Join(d, name))
		}
	}
	not := &NotRunnable{127, fmt.Sprintf("%q is in none of the directories of %s", name, path)}
	for _, p := range candidates {
		if !filepath.IsAbs(p) {
			p = filepath.Join(dir, p)
		}
		fi, err := os.Stat(p)
		switch {
		case err != nil:
			if len(candidates) == 1 {
				not.Why = err.Error()
			}
		case fi.IsDir() || fi.Mode()&0o111 == 0:
			not = &NotRunnable{126, p + ": " + syscall.EACCES.Error()}
		default:
			return p, nil
		}
	}
	return "", not
}
