package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/bwrap/internal/holder"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/command"
	"github.com/hutch-run/hutch/sdk/limits"
	"github.com/hutch-run/hutch/sdk/network/gate"
	"github.com/hutch-run/hutch/sdk/network/netns"
	"github.com/hutch-run/hutch/sdk/seccomp/recorder"
	"github.com/hutch-run/hutch/sdk/supervise/microinit"
)

// Exec implements [sdk.Sandbox].
func (s *sandbox) Exec(ctx context.Context, c *sdk.Command) (*sdk.Exit, error) {
	if c.User != "" && c.User != "sandbox" && c.User != fmt.Sprint(configOf(&s.spec).UID) {
		return nil, sdk.Errorf(sdk.ReasonUnsupported, "there is no user %q in the sandbox",
			c.User).WithFix("leave --user out")
	}
	release, err := s.use()
	if err != nil {
		return nil, err
	}
	defer release()
	env, err := command.Environment(c, map[string]string{"HOME": homePath})
	if err != nil {
		return nil, err
	}
	candidates, dir := command.Candidates(c.Argv[0], env), cmp.Or(c.Dir, workspacePath)
	args, err := microinit.Args(c.TTY != nil, dir, candidates, env, c.Argv)
	if err != nil {
		return nil, sdk.Errorf(sdk.ReasonConfig, "the command cannot be passed on: %w", err)
	}
	stdin, stdout, stderr := c.Stdin, c.Stdout, c.Stderr
	var term *command.Terminal
	var slave *os.File // the command's end of its terminal
	if c.TTY != nil {
		if term, slave, err = openTerminal(s.holder, c); err != nil {
			return nil, err
		}
		defer term.Close()
		defer slave.Close()
		stdin, stdout, stderr = slave, slave, slave
	} else if s.ident.Privileged {
		// The FIFOs are root's; /dev/stdout must open for who writes to it.
		for _, f := range []*os.File{stdin, stdout, stderr} {
			command.Lend(f, int(s.ident.hostUID), int(s.ident.hostGID))
		}
	}
	before := s.stats()
	start := time.Now()
	var filter []byte
	var listener *os.File
	var record *recorder.Recorder
	if c.Observe {
		if record, listener, err = s.record(); err != nil {
			return nil, sdk.Errorf(sdk.ReasonInternal, "observe the command: %w", err)
		}
		filter = recorder.Filter()
	}
	var p *holder.Process
	var network *gate.Gate
	if !c.Observe {
		p = s.takeWaiting()
	}
	if p == nil {
		p, err = s.holder.Spawn(initPath, filter, listener)
		if listener != nil {
			listener.Close()
		}
		if err != nil {
			return nil, sdk.Errorf(sdk.ReasonInternal, "start bwrap: %w", err)
		}
		defer s.run(p)()
		network, err = s.admit(p, c)
	} else {
		defer s.run(p)()
	}
	var attempts *netns.Attempts
	if err == nil && !hasNetwork(&s.spec) {
		attempts = netns.WatchAttempts(p.AwaitInit())
		defer attempts.Close()
	}
	if err == nil {
		err = p.Command(args, stdin, stdout, stderr)
	}
	if slave != nil { // so that the output ends with the command
		_ = slave.Close()
	}
	if err != nil {
		network.Close()
		_ = p.Kill()
		_, werr := p.Wait()
		return nil, errors.Join(err, werr)
	}
	defer network.Close()
	sampled := func() (*limits.Overrun, uint64) { return nil, 0 }
	if s.sampler != nil {
		sampled = s.sampler.Watch(p.Init, func() { _ = p.Kill() }).End
	}
	stop := command.Watch(ctx, p, c, term.Resize)
	result, err := p.Wait()
	over, peak := sampled()
	stop()
	if err != nil && s.keep && isClosed(s.holder.Gone()) { // another process has removed, reset or stopped the sandbox
		term.Drain()
		exit := &sdk.Exit{Cause: sdk.CauseSignaled, Code: 137, Signal: "SIGKILL",
			Evidence: "the sandbox's holder ended, and all commands with it"}
		exit.Usage.Wall = time.Since(start)
		command.Blame(ctx, exit, command.Met{})
		return exit, nil
	}
	if err != nil {
		return nil, sdk.Errorf(sdk.ReasonInternal, "%w", err)
	}
	term.Drain()
	exit, err := command.Unexecuted(p.Child, candidates, dir)
	switch {
	case exit != nil:
		exit.Usage = s.usage(result, before)
	case err == nil:
		exit, err = s.exit(ctx, p, result, before, over)
	}
	if exit != nil {
		exit.Usage.PeakMemory = max(exit.Usage.PeakMemory, int64(peak))
		exit.Usage.Wall = time.Since(start)
		exit.Traffic, exit.TrafficMore = network.Close()
		exit.Files, exit.NetworkMissed = record.End(), attempts.Any()
	}
	return exit, err
}

// record begins to note what a command names. The process that becomes the command sends its listener over the socket.
func (s *sandbox) record() (*recorder.Recorder, *os.File, error) {
	mounts := slices.Clone(configOf(&s.spec).ROBind)
	for _, m := range s.spec.Mounts {
		mounts = append(mounts, m.Target)
	}
	return recorder.Start(initPath, mounts, reserved)
}

// hasNetwork says that commands have a network at all. Mode full differs from filtered in what the gate allows.
func hasNetwork(spec *sdk.Spec) bool { return spec.Network != sdk.NetworkNone && spec.Network != "" }

// admit puts what waits for a command into its cgroup, and serves its network.
func (s *sandbox) admit(p *holder.Process, c *sdk.Command) (g *gate.Gate, err error) {
	if s.group != nil {
		// Without a pid bwrap has failed, which Wait says.
		if pid := p.AwaitInit(); pid == 0 {
			return nil, nil
		} else if err := s.group.Add(pid); err != nil {
			return nil, sdk.Errorf(sdk.ReasonInternal, "put the command into its cgroup: %w", err)
		}
	}
	if hasNetwork(&s.spec) {
		l, err := p.Network()
		if err == nil {
			g, err = gate.Open(l, gate.Options{Network: s.spec.Network, Rules: s.spec.Rules, Secrets: c.Secrets,
				Authority: c.Authority, Budget: c.Budget})
		}
		if err == nil {
			if _, err = g.Serve(c); err != nil { // until it is closed
				g.Close()
				g = nil
			}
		}
		if err != nil {
			return nil, sdk.Errorf(sdk.ReasonInternal, "serve the command's network: %w", err)
		}
	}
	return g, nil
}

// openTerminal makes a terminal of the sandbox's own devpts.
func openTerminal(h *holder.Holder, c *sdk.Command) (t *command.Terminal, slave *os.File, err error) {
	master, slave, err := h.PTY()
	if err != nil {
		return nil, nil, sdk.Errorf(sdk.ReasonInternal, "make a terminal: %w", err)
	}
	if t, err = command.OpenTerminal(master, c); err != nil {
		_ = slave.Close()
		return nil, nil, err
	}
	t.Resize(*c.TTY)
	return t, slave, nil
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
func (s *sandbox) exit(ctx context.Context, p *holder.Process, r *holder.Result, before limits.Stats,
	over *limits.Overrun) (*sdk.Exit, error) {
	status, ended := p.Status()
	if p.Silent() && sdk.CauseOf(ctx) == "" {
		return nil, setupFailed(r)
	}
	exit := command.Ended(status)
	if !ended { // pid 1 was killed, and everything with it
		exit = &sdk.Exit{Cause: sdk.CauseSignaled, Signal: "SIGKILL", Code: 137, Evidence: "the process namespace was killed"}
	}
	exit.Usage = s.usage(r, before)
	after := s.stats()
	met := command.Met{OOMKills: command.Since(before.OOMKills, after.OOMKills),
		PIDsHits: command.Since(before.PIDsHits, after.PIDsHits), Over: over, Full: s.full,
		Memory: s.held.Shown.Memory, Files: []*os.File{s.tmp}}
	command.Blame(ctx, exit, met)
	return exit, nil
}

// full says whether the sandbox's sized file system has no room left.
func (s *sandbox) full() bool {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(s.tmp.Fd()), &st); err != nil {
		return false
	}
	return st.Bfree == 0 || st.Ffree == 0
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
	if after.MemoryPeak > 0 {
		u.PeakMemory = int64(after.MemoryPeak)
	}
	if after.PIDsPeak > ownProcesses {
		u.PIDs = int64(after.PIDsPeak) - ownProcesses
	}
	return u
}

// setupFailed explains a bwrap that never came to run anything.
func setupFailed(r *holder.Result) error {
	words := strings.TrimPrefix(r.Words, "bwrap: ")
	if words == "" {
		words = fmt.Sprintf("it ended with wait status %#x and said nothing", int(r.Bwrap))
	}
	if e := usedUp(words); e != nil {
		return e
	}
	return &sdk.Error{Reason: sdk.ReasonMissing, Summary: "bwrap could not make the sandbox: " + words,
		Fix: namespaceFix()}
}

// Dial implements [sdk.Dialer].
func (s *sandbox) Dial(_ context.Context, port int) (net.Conn, error) {
	release, err := s.use()
	if err != nil {
		return nil, err
	}
	defer release()
	conn, err := s.holder.Dial(port)
	if err != nil {
		return nil, sdk.Errorf(sdk.ReasonInternal, "connect to port %d of the sandbox: %w", port, err)
	}
	if conn == nil {
		return nil, sdk.Errorf(sdk.ReasonNotFound, "nothing listens on port %d of the sandbox's loopback", port)
	}
	return conn, nil
}
