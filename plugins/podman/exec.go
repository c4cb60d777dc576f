package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/podman/internal/agent"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/command"
	"github.com/hutch-run/hutch/sdk/limits"
	"github.com/hutch-run/hutch/sdk/network/netns"
	"github.com/hutch-run/hutch/sdk/seccomp/recorder"
	"github.com/hutch-run/hutch/sdk/supervise"
)

// Exec implements [sdk.Sandbox].
func (s *sandbox) Exec(ctx context.Context, c *sdk.Command) (*sdk.Exit, error) {
	release, err := s.use()
	if err != nil {
		return nil, err
	}
	defer release()
	env, err := s.environment(c)
	if err != nil {
		return nil, err
	}
	if !s.isOwnUser(c.User) {
		return s.execAs(ctx, c, env)
	}
	if !s.who.rootless {
		for _, f := range []*os.File{c.Stdin, c.Stdout, c.Stderr} {
			command.Lend(f, s.who.hostUID, s.who.hostGID)
		}
	}
	network, err := s.network(ctx, c)
	if err != nil {
		return nil, err
	}
	defer network()
	var attempts *netns.Attempts
	if !hasNetwork(&s.spec) {
		attempts = netns.WatchAttempts(s.pid)
		defer attempts.Close()
	}
	before, start := s.group.Stats(), time.Now()
	cmd := &agent.Command{
		Argv: c.Argv, Env: env, Dir: cmp.Or(c.Dir, workspacePath),
		Stdin: c.Stdin, Stdout: c.Stdout, Stderr: c.Stderr, Terminal: c.TTY,
	}
	var record *recorder.Recorder
	if c.Observe {
		var mounts []string
		for _, m := range s.spec.Mounts {
			mounts = append(mounts, m.Target)
		}
		if record, cmd.Observer, err = recorder.Start(agent.Init, mounts, ofImage); err != nil {
			return nil, sdk.Errorf(sdk.ReasonInternal, "observe the command: %w", err)
		}
		cmd.Filter = recorder.Filter()
	}
	p, err := s.agent.Exec(ctx, cmd)
	if cmd.Observer != nil {
		cmd.Observer.Close()
	}
	if err != nil {
		if !alive(s.container) {
			return s.containerEnded(ctx, before, nil)
		}
		return nil, fmt.Errorf("start the command: %w", err)
	}
	var term *command.Terminal
	if c.TTY != nil && p.Terminal() != nil { // without one it has ended already
		if term, err = command.OpenTerminal(p.Terminal(), c); err != nil {
			_ = p.Kill()
			return nil, err
		}
		defer term.Close()
	}
	sampled := s.watch(p.Kill)
	stop := command.Watch(ctx, p, c, term.Resize)
	ended, err := p.Wait(context.WithoutCancel(ctx))
	over, peak := sampled()
	stop()
	term.Drain()
	exit, err := s.exit(ctx, ended, err, before, over)
	if exit != nil {
		exit.Usage.PeakMemory = max(exit.Usage.PeakMemory, int64(peak))
		exit.Usage.Wall = time.Since(start)
		exit.Traffic, exit.TrafficMore = network()
		exit.Files, exit.NetworkMissed = record.End(), attempts.Any()
	}
	return exit, err
}

// ofImage says that an image has its own of what the host has there, so that it is not missing.
func ofImage(path string) bool {
	top, _, _ := strings.Cut(path[1:], "/")
	return slices.Contains([]string{"", "bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "root", "run",
		"sbin", "sys", "tmp", "usr", "workspace", "input", "output"}, top)
}

// isOwnUser says whether name is the user that the container's own commands have.
func (s *sandbox) isOwnUser(name string) bool {
	uid := strconv.Itoa(s.who.uid)
	return name == "" || name == uid || name == uid+":"+strconv.Itoa(s.who.gid) || name == "root" && s.who.uid == 0
}

// environment is the whole environment of a command.
func (s *sandbox) environment(c *sdk.Command) ([]string, error) {
	base := map[string]string{"HOME": homePath, "PATH": cmp.Or(s.path, supervise.DefaultPath)}
	maps.Copy(base, configOf(&s.spec).Env)
	return command.Environment(c, base)
}

// exit says how the command ended, from what the agent, the kernel's counters and Podman say.
func (s *sandbox) exit(ctx context.Context, ended *agent.Exit, err error, before limits.Stats,
	over *limits.Overrun) (*sdk.Exit, error) {
	switch {
	case err != nil && !alive(s.container):
		return s.containerEnded(ctx, before, over)
	case err != nil:
		return nil, err
	}
	if ended.NotStarted != nil {
		return ended.NotStarted, nil
	}
	after := s.group.Stats()
	exit := command.Ended(ended.Status)
	exit.Usage = sdk.Usage{User: ended.User, Sys: ended.Sys, PeakMemory: ended.MaxRSS}
	if after.MemoryPeak > 0 {
		exit.Usage.PeakMemory = int64(after.MemoryPeak)
	}
	if after.PIDsPeak > ownProcesses {
		exit.Usage.PIDs = int64(after.PIDsPeak) - ownProcesses
	}
	command.Blame(ctx, exit, s.met(before, after, over))
	return exit, nil
}

// met are the limits that the container ran into between two looks at its counters.
func (s *sandbox) met(before, after limits.Stats, over *limits.Overrun) command.Met {
	return command.Met{OOMKills: command.Since(before.OOMKills, after.OOMKills),
		PIDsHits: command.Since(before.PIDsHits, after.PIDsHits), Over: over, Full: s.full,
		Memory: s.held.Shown.Memory, Files: s.memory}
}

// full says whether a sized file system of the sandbox has no room left.
func (s *sandbox) full() bool {
	var st unix.Statfs_t
	if s.held.InMemory && unix.Statfs(s.dirs.layer(), &st) == nil && (st.Bfree == 0 || st.Ffree == 0) {
		return true
	}
	for _, f := range s.memory {
		if unix.Fstatfs(int(f.Fd()), &st) == nil && st.Blocks > 0 && (st.Bfree == 0 || st.Files > 0 && st.Ffree == 0) {
			return true
		}
	}
	return false
}

// containerEnded is the end of a command whose whole container ended: why, Podman knows.
func (s *sandbox) containerEnded(ctx context.Context, before limits.Stats, over *limits.Overrun) (*sdk.Exit, error) {
	exit := &sdk.Exit{Cause: sdk.CauseSignaled, Code: 137, Signal: "SIGKILL", Evidence: "the container ended"}
	command.Blame(ctx, exit, s.met(before, s.group.Stats(), over))
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

// Dial implements [sdk.Dialer].
func (s *sandbox) Dial(ctx context.Context, port int) (net.Conn, error) {
	release, err := s.use()
	if err != nil {
		return nil, err
	}
	defer release()
	conn, err := s.agent.Dial(ctx, port)
	if err == nil && conn == nil {
		err = sdk.Errorf(sdk.ReasonNotFound, "nothing listens on port %d of the sandbox's loopback", port)
	}
	return conn, err
}
