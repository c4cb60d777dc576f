package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/podman/internal/agent"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/process"
)

// Exec implements [sdk.Sandbox].
func (s *sandbox) Exec(ctx context.Context, c *sdk.Command) (*sdk.Exit, error) {
	release, err := s.use()
	if err != nil {
		return nil, err
	}
	defer release()
	if c.Dir != "" && !path.IsAbs(c.Dir) {
		return nil, sdk.Errorf(sdk.ReasonConfig, "the directory %q to work in is not absolute", c.Dir)
	}
	if !s.isOwnUser(c.User) {
		return s.execAs(ctx, c)
	}
	for _, f := range []*os.File{c.Stdin, c.Stdout, c.Stderr} {
		s.who.lend(f)
	}
	before, start := s.group.read(), time.Now()
	p, err := s.agent.Exec(ctx, &agent.Command{
		Argv: c.Argv, Env: s.environment(c), Dir: cmpString(c.Dir, workspacePath),
		Stdin: c.Stdin, Stdout: c.Stdout, Stderr: c.Stderr, Terminal: c.TTY,
	})
	if err != nil {
		if !alive(s.container) {
			return s.containerEnded(ctx, before)
		}
		return nil, fmt.Errorf("start the command: %w", err)
	}
	var term *terminal
	if c.TTY != nil && p.Terminal() != nil { // without one it has ended already
		if term, err = openTerminal(p.Terminal(), c); err != nil {
			_ = p.Kill()
			return nil, err
		}
		defer term.close()
	}
	ended, err := s.watch(ctx, p, c, term)
	term.drain()
	exit, err := s.exit(ctx, ended, err, before, c)
	if exit != nil {
		exit.Usage.Wall = time.Since(start)
	}
	return exit, err
}

// isOwnUser says whether name is the user that the container's own commands have.
func (s *sandbox) isOwnUser(name string) bool {
	uid := strconv.Itoa(s.who.uid)
	return name == "" || name == uid || name == uid+":"+strconv.Itoa(s.who.gid) || name == "root" && s.who.uid == 0
}

func cmpString(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// environment is the whole environment of a command: its own, what the configuration sets, and what every program needs.
func (s *sandbox) environment(c *sdk.Command) []string {
	env := map[string]string{"HOME": homePath, "PATH": cmpString(s.path, process.DefaultPath), "LANG": "C.UTF-8"}
	if c.TTY != nil {
		env["TERM"] = "xterm"
	}
	maps.Copy(env, configOf(&s.spec).Env)
	maps.Copy(env, c.Env)
	out := make([]string, 0, len(env))
	for name, value := range env {
		out = append(out, name+"="+value)
	}
	slices.Sort(out)
	return out
}

// watch delivers signals and window sizes until the command and all its processes are gone, and sees to it that they are
// when ctx ends.
func (s *sandbox) watch(ctx context.Context, p *agent.Process, c *sdk.Command, term *terminal) (*agent.Exit, error) {
	done, finished := make(chan struct{}), make(chan struct{})
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
					select {
					case <-started:
						tell()
					default:
					}
				}
				return
			}
		}
	}()
	ended, err := p.Wait(context.WithoutCancel(ctx))
	close(done)
	<-finished
	return ended, err
}

// end tells the command to end, and kills all that it started when it has not done so within grace.
func end(p *agent.Process, grace time.Duration, done <-chan struct{}) {
	if grace <= 0 {
		grace = process.DefaultGrace
	}
	select {
	case <-p.Started():
		_ = p.SignalGroup(unix.SIGTERM)
	default: // there is nobody yet who could end in order
		_ = p.Kill()
		return
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		_ = p.Kill()
	}
}

// exit says how the command ended, from what the agent, the kernel's counters and Podman say.
func (s *sandbox) exit(ctx context.Context, ended *agent.Exit, err error, before counters, c *sdk.Command) (*sdk.Exit, error) {
	var no *agent.NotRunnable
	switch {
	case errors.As(err, &no):
		return &sdk.Exit{Cause: sdk.CauseExited, NotStarted: true, Code: no.Code,
			Evidence: fmt.Sprintf("execve: %v (tried %s)", no.Errno, strings.Join(no.Tried, ", "))}, nil
	case err != nil && !alive(s.container):
		return s.containerEnded(ctx, before)
	case err != nil:
		return nil, err
	}
	after := s.group.read()
	exit := &sdk.Exit{Cause: sdk.CauseExited, Usage: sdk.Usage{User: ended.User, Sys: ended.Sys, PeakMemory: ended.MaxRSS}}
	if after.memoryPeak > 0 {
		exit.Usage.PeakMemory = int64(after.memoryPeak)
	}
	if after.pidsPeak > ownProcesses {
		exit.Usage.PIDs = int64(after.pidsPeak) - ownProcesses
	}
	if ws := ended.Status; ws.Signaled() {
		exit.Cause, exit.Code, exit.Signal = sdk.CauseSignaled, 128+int(ws.Signal()), unix.SignalName(ws.Signal())
		if exit.Signal == "" {
			exit.Signal = fmt.Sprintf("SIG%d", int(ws.Signal()))
		}
		exit.Evidence = fmt.Sprintf("wait status: signal %d", int(ws.Signal()))
	} else {
		exit.Code = ws.ExitStatus()
		exit.Evidence = fmt.Sprintf("wait status: exit %d", exit.Code)
	}
	s.cause(ctx, exit, before, after)
	return exit, nil
}

// cause decides why the command ended. What stopped it counts before what it ran into; a limit counts only for a command
// that failed.
func (s *sandbox) cause(ctx context.Context, exit *sdk.Exit, before, after counters) {
	if stopped := sdk.CauseOf(ctx); stopped != "" {
		exit.Cause = stopped
		exit.Evidence = "stopped by hutch; " + exit.Evidence
		return
	}
	if exit.Code == 0 {
		return
	}
	switch {
	case after.oomKills > before.oomKills:
		exit.Cause = sdk.CauseOOM
		exit.Evidence = fmt.Sprintf("cgroup oom_kill %d; %s", after.oomKills-before.oomKills, exit.Evidence)
	case after.pidsHits > before.pidsHits:
		exit.Cause = sdk.CausePIDs
		exit.Evidence = fmt.Sprintf("cgroup pids.events max %d; %s", after.pidsHits-before.pidsHits, exit.Evidence)
	case s.spec.Limits.Disk > 0 && s.full():
		exit.Cause = sdk.CauseDisk
		exit.Evidence = "statfs: no free block in the sandbox's file system; " + exit.Evidence
	}
}

// full says whether the sandbox's sized file system has no room left.
func (s *sandbox) full() bool {
	var st unix.Statfs_t
	return unix.Statfs(s.dirs.layer(), &st) == nil && st.Bfree == 0
}

// containerEnded is the end of a command whose whole container ended: why, Podman knows.
func (s *sandbox) containerEnded(ctx context.Context, before counters) (*sdk.Exit, error) {
	exit := &sdk.Exit{Cause: sdk.CauseSignaled, Code: 137, Signal: "SIGKILL", Evidence: "the container ended"}
	s.cause(ctx, exit, before, s.group.read())
	if exit.Cause != sdk.CauseSignaled {
		return exit, nil
	}
	st, err := s.podman.state(context.WithoutCancel(ctx), s.name())
	if err != nil {
		return nil, sdk.Errorf(sdk.ReasonUnavailable, "the container of the sandbox %s ended: %w", s.id, err)
	}
	exit.Evidence = "podman's state of the container: " + st.text()
	if st.OOMKilled {
		exit.Cause = sdk.CauseOOM
	}
	return exit, nil
}
