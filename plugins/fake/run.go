package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/command"
	"github.com/hutch-run/hutch/sdk/limits"
	"github.com/hutch-run/hutch/sdk/supervise"
)

// launch is what Exec found out about a command before it starts it.
type launch struct {
	program, dir string
	argv, env    []string
	cred         *syscall.Credential
}

// run starts the command and waits for its end.
func (s *sandbox) run(ctx context.Context, c *sdk.Command, l *launch) (*sdk.Exit, error) {
	cfg := &s.st.Config
	cmd := &exec.Cmd{Path: l.program, Args: l.argv, Env: l.env, Dir: l.dir,
		SysProcAttr: &syscall.SysProcAttr{Credential: l.cred}}
	if s.st.Isolated {
		withoutNetwork(cmd.SysProcAttr)
	}
	in, err := use(brand(s.st.Dir, s.id))
	if err != nil {
		return nil, sdk.Errorf(sdk.ReasonNotFound, "the sandbox %s is gone: %w", s.id, err)
	}
	defer in.Close()
	group, err := s.newGroup()
	if err != nil {
		return nil, err
	}
	spare := cfg.lies("keep_setsid")
	if !spare {
		defer group.Destroy(context.WithoutCancel(ctx))
	}
	o := supervise.Options{Grace: c.Grace}
	if group.Handle() != nil || spare {
		o.Group = group
	}
	if o.Rlimits, err = group.Rlimits().List(); err != nil {
		return nil, err
	}
	var leader atomic.Pointer[supervise.Process]
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	if group.Handle() == nil && !spare { // else the cgroup finds the command
		defer onEnding(brand(s.st.Dir, s.id), func() {
			if p := leader.Load(); p != nil {
				_ = p.Signal(syscall.SIGKILL)
			}
			end(sdk.ErrCancelled)
		})()
	}
	if c.Grace == 0 || cfg.lies("no_grace") {
		o.Grace = -1
	}
	w, err := s.wire(c, cmd, &o)
	if err != nil {
		return nil, err
	}
	var p running
	if spare {
		p, err = startNaive(cmd, o)
	} else {
		var started *supervise.Process
		started, err = supervise.Start(cmd, o)
		leader.Store(started)
		p = started
	}
	w.started()
	if err != nil {
		w.finish()
		return notStarted(err)
	}
	c.Started()
	go s.deliver(p, c)
	if cfg.CrashDuring == "exec" {
		cfg.fault("exec")
	}
	wait := ctx
	if cfg.lies("ignore_output") {
		var cancel context.CancelCauseFunc
		wait, cancel = context.WithCancelCause(context.WithoutCancel(ctx))
		defer cancel(nil)
		defer context.AfterFunc(ctx, func() {
			if errors.Is(context.Cause(ctx), sdk.ErrOutputLimit) {
				time.Sleep(15 * time.Second) // longer than anybody waits
			}
			cancel(context.Cause(ctx))
		})()
	}
	r := p.Wait(wait)
	w.finish()
	if r.Err != nil {
		return nil, sdk.Errorf(sdk.ReasonInternal, "the end of the command: %w", r.Err)
	}
	return s.exit(ctx, &r, group), nil
}

// notStarted distinguishes a program that cannot be executed from a backend that cannot execute.
func notStarted(err error) (*sdk.Exit, error) {
	for _, e := range []error{syscall.EACCES, syscall.ENOEXEC, syscall.ENOENT, syscall.E2BIG, syscall.ENOTDIR,
		syscall.ELOOP} {
		if errors.Is(err, e) {
			return &sdk.Exit{Cause: sdk.CauseExited, Code: 126, NotStarted: true, Evidence: err.Error()}, nil
		}
	}
	return nil, sdk.Errorf(sdk.ReasonInternal, "starting the command: %w", err)
}

// withoutNetwork gives a command its own network that leads nowhere.
func withoutNetwork(attr *syscall.SysProcAttr) {
	attr.Cloneflags |= unix.CLONE_NEWNET
	if os.Getuid() != 0 {
		attr.Cloneflags |= unix.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
	}
}

// deliver passes signals on until the command's context ends.
func (s *sandbox) deliver(p running, c *sdk.Command) {
	for n := range c.Signals {
		if !s.st.Config.lies("ignore_signals") {
			_ = syscall.Kill(p.Pid(), syscall.Signal(n)) // it may just have ended
		}
	}
}

// exit says how it ended, and asks the kernel's counters why.
func (s *sandbox) exit(ctx context.Context, r *supervise.Result, g *limits.Group) *sdk.Exit {
	cfg := &s.st.Config
	e := command.Ended(r.Status)
	e.Usage = sdk.Usage{Wall: r.Usage.Wall, User: r.Usage.User, Sys: r.Usage.Sys, PeakMemory: r.Usage.MaxRSS}
	if s.st.Network != sdk.NetworkNone {
		e.Traffic = traffic
	}
	counted, _ := g.Stats() // nothing without a cgroup
	command.Blame(ctx, e, command.Met{OOMKills: counted.OOMKills, PIDsHits: counted.PIDsHits})
	if cfg.lies("wrong_cause") && e.Cause == sdk.CauseTimeout {
		e.Cause = sdk.CauseCancelled
	}
	if cfg.lies("exit_code") && e.Code == 7 {
		e.Code = 0
	}
	if cfg.lies("signal_as_exit") && e.Cause == sdk.CauseSignaled {
		e.Cause, e.Signal = sdk.CauseExited, ""
	}
	if cfg.lies("zero_usage") {
		e.Usage = sdk.Usage{Wall: e.Usage.Wall}
	}
	if cfg.lies("no_usage") {
		e.Usage.Wall += time.Minute
	}
	return e
}
