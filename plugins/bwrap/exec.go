package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/bwrap/internal/holder"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/limits"
	"github.com/hutch-run/hutch/sdk/microinit"
)

// defaultGrace is the time between SIGTERM and SIGKILL when the host gives none.
const defaultGrace = 2 * time.Second

// Exec implements [sdk.Sandbox].
func (s *sandbox) Exec(ctx context.Context, c *sdk.Command) (*sdk.Exit, error) {
	if c.User != "" && c.User != "sandbox" && c.User != fmt.Sprint(configOf(&s.spec).UID) {
		return nil, sdk.Errorf(sdk.ReasonUnsupported, "there is no user %q in the sandbox", c.User).WithFix("leave the user away")
	}
	release, err := s.use()
	if err != nil {
		return nil, err
	}
	defer release()
	args, candidates, err := commandArgs(c)
	if err != nil {
		return nil, err
	}
	stdin, stdout, stderr := c.Stdin, c.Stdout, c.Stderr
	var term *terminal
	if c.TTY != nil {
		if term, err = openTerminal(s.holder, c); err != nil {
			return nil, err
		}
		defer term.close()
		stdin, stdout, stderr = term.slave, term.slave, term.slave
	} else if s.ident.Privileged {
		// The FIFOs are root's; /dev/stdout must open for who writes to it.
		for _, f := range []*os.File{stdin, stdout, stderr} {
			s.lend(f)
		}
	}
	before := s.stats()
	start := time.Now()
	p, err := s.holder.Exec(args, stdin, stdout, stderr, s.group != nil)
	if err != nil {
		return nil, sdk.Errorf(sdk.ReasonInternal, "start bwrap: %w", err)
	}
	defer s.run(p)()
	term.started()
	if s.group != nil {
		if err := s.enterGroup(p); err != nil {
			p.Kill()
			_, werr := p.Wait()
			return nil, sdk.Errorf(sdk.ReasonInternal, "put the command into its cgroup: %w", errors.Join(err, werr))
		}
	}
	result, err := s.watch(ctx, p, c, term)
	if err != nil {
		return nil, err
	}
	term.drain()
	exit, err := s.exit(ctx, result, before, candidates, c)
	if exit != nil {
		exit.Usage.Wall = time.Since(start)
	}
	return exit, err
}

// watch delivers signals and window sizes until the command and all its processes
// are gone, and sees to it that they are when ctx ends.
func (s *sandbox) watch(ctx context.Context, p *holder.Process, c *sdk.Command, term *terminal) (*holder.Result, error) {
	done := make(chan struct{})
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		started := p.Started()
		tell := func() {
			started = nil
			if c.Started != nil && p.Executed() {
				c.Started()
			}
		}
		signals, resizes := c.Signals, c.Resizes
		if term == nil {
			resizes = nil
		}
		for {
			select {
			case <-started:
				tell()
			case n, ok := <-signals:
				if !ok {
					signals = nil
					continue
				}
				select { // it may run already without our having heard of it
				case <-p.Started():
				case <-done:
				case <-ctx.Done():
				}
				_ = p.Signal(syscall.Signal(n)) // a command that is gone needs none
			case size, ok := <-resizes:
				if !ok {
					resizes = nil
					continue
				}
				term.resize(size)
			case <-ctx.Done():
				end(p, c.Grace, done)
				return
			case <-done:
				if started != nil { // both came at once
					tell()
				}
				return
			}
		}
	}()
	result, err := p.Wait()
	close(done)
	<-finished
	if err != nil {
		return nil, sdk.Errorf(sdk.ReasonInternal, "%w", err)
	}
	return result, nil
}

// end tells the command to end, and kills its whole process namespace when it has
// not done so within grace.
func end(p *holder.Process, grace time.Duration, done <-chan struct{}) {
	if grace <= 0 {
		grace = defaultGrace
	}
	select {
	case <-p.Started():
		p.SignalGroup(unix.SIGTERM)
	default: // there is nobody yet who could end in order
		p.Kill()
		return
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-done:
		return
	case <-timer.C:
	}
	p.Kill()
}

// enterGroup moves the command, which waits, into the sandbox's cgroup.
func (s *sandbox) enterGroup(p *holder.Process) error {
	pid, err := p.InitPID()
	if err != nil {
		return err
	}
	if err := s.group.Add(pid); err != nil {
		return err
	}
	p.Release()
	return nil
}

// lend lets the sandbox's user open the stream again, through /dev/stdout. A
// stream that is not ours to give is left as it is.
func (s *sandbox) lend(f *os.File) {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO {
		_ = unix.Fchown(int(f.Fd()), int(s.ident.hostUID), int(s.ident.hostGID))
	}
}

// stats reads the cgroup's counters; without a cgroup there are none.
func (s *sandbox) stats() limits.Stats {
	if s.group == nil {
		return limits.Stats{}
	}
	st, err := s.group.Stats()
	if err != nil {
		return limits.Stats{}
	}
	return st
}

// exit says how the command ended, from what pid 1, bwrap and the kernel's
// counters say.
func (s *sandbox) exit(ctx context.Context, r *holder.Result, before limits.Stats, candidates []string, c *sdk.Command) (*sdk.Exit, error) {
	exit := &sdk.Exit{Usage: s.usage(r, before)}
	status, ended := r.Reports[microinit.Ended]
	stopped := sdk.CauseOf(ctx)
	if errno, ok := r.Reports[microinit.NoExec]; ok {
		return notStarted(exit, syscall.Errno(errno), candidates), nil
	}
	if errno, ok := r.Reports[microinit.NoDir]; ok {
		return nil, sdk.Errorf(sdk.ReasonConfig, "the sandbox has no directory %s to work in: %w", c.Dir, syscall.Errno(errno))
	}
	for kind, what := range map[microinit.Kind]string{microinit.NoFork: "start a process", microinit.NoLimit: "set its limits", microinit.NoBlock: "read the command"} {
		if errno, ok := r.Reports[kind]; ok {
			return nil, sdk.Errorf(sdk.ReasonInternal, "the sandbox could not %s: %w", what, syscall.Errno(errno))
		}
	}
	if len(r.Reports) == 0 && stopped == "" {
		return nil, setupFailed(r)
	}
	switch ws := syscall.WaitStatus(status); {
	case !ended: // pid 1 was killed, and everything with it
		exit.Signal, exit.Code = "SIGKILL", 137
		exit.Evidence = "the process namespace was killed"
	case ws.Signaled():
		exit.Signal, exit.Code = unix.SignalName(ws.Signal()), 128+int(ws.Signal())
		if exit.Signal == "" {
			exit.Signal = fmt.Sprintf("SIG%d", int(ws.Signal()))
		}
		exit.Evidence = fmt.Sprintf("wait status: signal %d", int(ws.Signal()))
	default:
		exit.Code = ws.ExitStatus()
		exit.Evidence = fmt.Sprintf("wait status: exit %d", exit.Code)
	}
	s.cause(exit, stopped, before)
	return exit, nil
}

// cause decides why the command ended. What stopped it counts before what it ran
// into; a limit counts only for a command that failed.
func (s *sandbox) cause(exit *sdk.Exit, stopped sdk.Cause, before limits.Stats) {
	exit.Cause = sdk.CauseExited
	if exit.Signal != "" {
		exit.Cause = sdk.CauseSignaled
	}
	if stopped != "" {
		exit.Cause = stopped
		exit.Evidence = "stopped by hutch; " + exit.Evidence
		return
	}
	if exit.Code == 0 {
		return
	}
	after := s.stats()
	switch {
	case after.OOMKills > before.OOMKills:
		exit.Cause = sdk.CauseOOM
		exit.Evidence = fmt.Sprintf("cgroup oom_kill %d; %s", after.OOMKills-before.OOMKills, exit.Evidence)
	case after.PidsHits > before.PidsHits:
		exit.Cause = sdk.CausePIDs
		exit.Evidence = fmt.Sprintf("cgroup pids.events max %d; %s", after.PidsHits-before.PidsHits, exit.Evidence)
	case s.spec.Limits.Disk > 0 && s.full():
		exit.Cause = sdk.CauseDisk
		exit.Evidence = "statfs: no free block in the sandbox's file system; " + exit.Evidence
	}
}

// full says whether the sandbox's sized file system has no room left.
func (s *sandbox) full() bool {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(s.upper.Fd()), &st); err != nil {
		return false
	}
	return st.Bfree == 0
}

// usage sums up what bwrap's rusage and the cgroup's counters say.
func (s *sandbox) usage(r *holder.Result, before limits.Stats) sdk.Usage {
	u := sdk.Usage{
		User: time.Duration(r.Usage.UserUS) * time.Microsecond, Sys: time.Duration(r.Usage.SysUS) * time.Microsecond,
		PeakMemory: r.Usage.MaxRSSKB << 10,
	}
	if s.group == nil {
		return u
	}
	after := s.stats()
	if after.Counts.MemoryPeak {
		u.PeakMemory = int64(after.MemoryPeak)
	}
	if after.Counts.PidsPeak {
		u.PIDs = max(int64(after.PidsPeak)-ownProcesses, 0)
	}
	return u
}

// notStarted is the end of a command that could not be executed.
func notStarted(exit *sdk.Exit, errno syscall.Errno, candidates []string) *sdk.Exit {
	exit.Cause, exit.NotStarted = sdk.CauseExited, true
	exit.Code = 126
	if errno == syscall.ENOENT || errno == syscall.ENOTDIR {
		exit.Code = 127
	}
	tried := candidates[0]
	if len(candidates) > 1 {
		tried = strings.Join(candidates, ", ")
	}
	exit.Evidence = fmt.Sprintf("execve: %v (tried %s)", errno, tried)
	return exit
}

// setupFailed explains a bwrap that never came to run anything.
func setupFailed(r *holder.Result) error {
	words := strings.TrimPrefix(r.Words, "bwrap: ")
	if words == "" {
		words = fmt.Sprintf("it ended with wait status %#x and said nothing", int(r.Bwrap))
	}
	return &sdk.Error{Reason: sdk.ReasonMissing, Summary: "bwrap could not make the sandbox: " + words, Fix: namespaceFix()}
}
