package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/hutch-run/hutch/plugins/landlock/internal/arbiter"
	"github.com/hutch-run/hutch/plugins/landlock/internal/launch"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/command"
	"github.com/hutch-run/hutch/sdk/seccomp"
	"github.com/hutch-run/hutch/sdk/supervise"
	"github.com/hutch-run/hutch/sdk/supervise/descendants"
)

// Exec implements [sdk.Sandbox].
func (s *sandbox) Exec(ctx context.Context, c *sdk.Command) (*sdk.Exit, error) {
	if c.User != "" && c.User != strconv.Itoa(os.Geteuid()) {
		return nil, sdk.Errorf(sdk.ReasonUnsupported, "commands of landlock run as the user who started hutch, not as %q",
			c.User).WithFix("leave --user out")
	}
	order, candidates, err := s.order(c)
	if err != nil {
		return nil, err
	}
	cmd, listener, err := launch.Command()
	if err != nil {
		return nil, sdk.Errorf(sdk.ReasonInternal, "%w", err)
	}
	defer listener.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Stdin, c.Stdout, c.Stderr
	options := supervise.Options{Grace: c.Grace}
	if c.Grace == 0 {
		options.Grace = -1
	}
	var term *command.Terminal
	if c.TTY != nil {
		pty, err := supervise.OpenTerminal(c.TTY.Rows, c.TTY.Cols)
		if err != nil {
			return nil, sdk.Errorf(sdk.ReasonInternal, "%w", err)
		}
		defer pty.Slave.Close()
		if term, err = command.OpenTerminal(pty.Master, c); err != nil {
			return nil, err
		}
		defer term.Close()
		options.Terminal = pty
		order.Devices = append(order.Devices, []byte(pty.Slave.Name()))
	}
	p, err := supervise.Start(cmd, options)
	if err != nil {
		return nil, sdk.Errorf(sdk.ReasonInternal, "start the launcher: %w", err)
	}
	r := &running{Process: p, started: make(chan struct{})}
	begun := context.AfterFunc(ctx, r.kill) // until the launcher has become the command, which has its grace
	go func() {
		<-p.Done()
		listener.Close() // if it never came
	}()
	var judge *arbiter.Arbiter
	err = launch.Follow(listener, p.Pid(), order, func(b launch.Begun) {
		r.setReaper(b.Reaper)
		judge = arbiter.Serve(b.Listener, s.writable())
	})
	begun()
	if err == nil {
		r.executed = true
		watch := s.sampler.Watch(r.init, r.kill)
		defer watch.End()
		stop := command.Watch(context.WithoutCancel(ctx), r, c, term.Resize)
		close(r.started)
		result := p.Wait(ctx)
		over, peak := watch.End()
		stop()
		term.Drain()
		judge.End()
		if result.Err != nil {
			return nil, sdk.Errorf(sdk.ReasonInternal, "wait for the command: %w", result.Err)
		}
		exit := ended(&result)
		exit.Usage.PeakMemory = max(exit.Usage.PeakMemory, int64(peak))
		command.Blame(ctx, exit, command.Met{Over: over, Memory: s.held.Shown.Memory})
		return exit, nil
	}
	r.kill()
	result := p.Wait(ctx)
	judge.End()
	term.Drain()
	return notExecuted(ctx, err, &result, candidates, c)
}

// ended says how a command ended by itself.
func ended(r *supervise.Result) *sdk.Exit {
	e := command.Ended(r.Status)
	e.Usage = sdk.Usage{Wall: r.Usage.Wall, User: r.Usage.User, Sys: r.Usage.Sys, PeakMemory: r.Usage.MaxRSS}
	return e
}

// notExecuted says why a command never ran: it cannot be executed, hutch stopped it before, or the backend failed.
func notExecuted(ctx context.Context, err error, r *supervise.Result, candidates []string, c *sdk.Command) (*sdk.Exit,
	error) {
	var not *launch.NotExecuted
	var noDir *launch.NoDir
	switch {
	case errors.As(err, &not):
		exit := command.NotStarted(not.Errno, candidates)
		exit.Usage = ended(r).Usage
		return exit, nil
	case errors.As(err, &noDir):
		return nil, sdk.Errorf(sdk.ReasonConfig, "the command cannot work in the directory %s: %w", c.Dir, noDir.Errno)
	case sdk.CauseOf(ctx) != "":
		exit := &sdk.Exit{Cause: sdk.CauseSignaled, Code: 137, Signal: "SIGKILL", Evidence: "it had not begun",
			NotStarted: true}
		command.Blame(ctx, exit, command.Met{})
		return exit, nil
	}
	return nil, sdk.Errorf(sdk.ReasonInternal, "start the command: %w", err)
}

// order says what the launcher of a command does, and lists the paths that it tries, for a message.
func (s *sandbox) order(c *sdk.Command) (o *launch.Order, candidates []string, err error) {
	tmp := s.path("tmp")
	env, err := command.Environment(c, map[string]string{"HOME": tmp, "TMPDIR": tmp})
	if err != nil {
		return nil, nil, err
	}
	candidates = command.Candidates(c.Argv[0], env)
	full := s.spec.Network == sdk.NetworkFull
	return &launch.Order{
		Candidates: launch.Bytes(candidates), Argv: launch.Bytes(c.Argv), Env: launch.Bytes(env),
		Dir:  []byte(cmp.Or(c.Dir, s.ready.Workspace)),
		Read: launch.Bytes(s.readable()), Write: launch.Bytes(s.writable()), Devices: launch.Bytes(devices),
		Network: full, Rlimits: s.held.rlimits, CPUs: s.held.cpus,
		Filter: seccomp.Program(seccomp.Options{Shared: true, Network: full, FixedCPUs: s.held.cpus != nil}),
	}, candidates, nil
}

// running is a command that was started. It implements [command.Running].
type running struct {
	*supervise.Process
	started  chan struct{}
	executed bool

	mu     sync.Mutex
	reaper int
}

func (r *running) setReaper(pid int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reaper = pid
}

func (r *running) init() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reaper
}

// Started implements [command.Running].
func (r *running) Started() <-chan struct{} { return r.started }

// Executed implements [command.Running].
func (r *running) Executed() bool { return r.executed }

// Signal implements [command.Running]. The command's number is its own until its reaper has reported its end.
func (r *running) Signal(sig syscall.Signal) error { return syscall.Kill(r.Pid(), sig) }

// SignalGroup implements [command.Running].
func (r *running) SignalGroup(sig syscall.Signal) error { return r.Process.Signal(sig) }

// Kill implements [command.Running].
func (r *running) Kill() error { r.kill(); return nil }

// kill kills all that is below the reaper, which then reports the end.
func (r *running) kill() {
	reaper := r.init()
	if reaper == 0 { // it has not restricted itself yet, so it is alone
		_ = r.Process.Signal(syscall.SIGKILL)
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, _ = descendants.Kill(ctx, func() []int { return descendants.Of(reaper) })
	}()
}
