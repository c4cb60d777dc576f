package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/kubernetes/internal/wire"
	"github.com/hutch-run/hutch/sdk/contract"
	"github.com/hutch-run/hutch/sdk/limits"
	"github.com/hutch-run/hutch/sdk/supervise"
	"github.com/hutch-run/hutch/sdk/supervise/descendants"
	"github.com/hutch-run/hutch/sdk/supervise/remote"
)

// call is one command that runs.
type call struct {
	kill func() // all of it, at once
	gone chan struct{}
}

// errKilled is why a command is ended that the backend gives up, or that lost it.
var errKilled = errors.New("killed by the backend")

// exec runs one command to its end.
func (s *server) exec(ctx context.Context, req wire.Request, c *remote.Call) *remote.Exit {
	if req.Exec == nil || len(req.Exec.Argv) == 0 {
		return &remote.Exit{Err: contract.Errorf(contract.ReasonConfig, "there is no command to run")}
	}
	cmd, why := command(req)
	if why != nil {
		return why
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	run := &call{kill: func() { cancel(errKilled) }, gone: make(chan struct{})}
	defer close(run.gone)
	files, ok := s.enter(run)
	if !ok {
		return &remote.Exit{Err: contract.Errorf(contract.ReasonInternal, "the connection is over")}
	}
	defer s.leave(run)
	o := supervise.Options{Grace: -1, Rlimits: []supervise.Rlimit{{Resource: unix.RLIMIT_CORE, Value: limits.NoCore}}}
	if files > 0 {
		o.Rlimits = append(o.Rlimits, supervise.Rlimit{Resource: unix.RLIMIT_NOFILE, Value: files})
	}
	before := readCounters()
	var p *supervise.Process
	err := c.StartBy(cmd, req.Exec.TTY, -1, -1, func(t *supervise.Terminal) (err error) {
		defer s.oom.raise()()
		o.Terminal = t
		p, err = supervise.Start(cmd, o)
		return err
	})
	if err != nil {
		return remote.NotStarted(err)
	}
	c.Started()
	go c.Obey(func(ctl remote.Control) {
		if ctl.Group {
			_ = p.Signal(unix.Signal(ctl.Signal)) // a command that is gone needs none
		} else {
			_ = p.SignalCommand(unix.Signal(ctl.Signal))
		}
	}, run.kill)
	res := p.Wait(ctx)
	if res.Err != nil { // somebody has killed what stood above the command
		kill, done := context.WithTimeout(context.Background(), time.Minute)
		_, _ = descendants.Kill(kill, orphans) // what does not end is process 1's
		done()
	}
	c.Finish()
	after := readCounters()
	exit := &remote.Exit{
		Status: uint32(res.Status), Killed: res.Err != nil, User: res.Usage.User, Sys: res.Usage.Sys,
		MaxRSS: res.Usage.MaxRSS, OOMKills: after.oomKills - min(before.oomKills, after.oomKills),
		MemoryPeak: after.memoryPeak,
	}
	return exit
}

func (s *server) enter(c *call) (files uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return 0, false
	}
	s.calls[c] = true
	return s.box.Files, true
}

func (s *server) leave(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.calls, c)
}

// command makes the command of a request, or says why it cannot be run.
func command(req wire.Request) (*exec.Cmd, *remote.Exit) {
	dir := string(req.Exec.Dir)
	if fi, err := os.Stat(dir); err != nil || !fi.IsDir() {
		return nil, &remote.Exit{Err: contract.Errorf(contract.ReasonConfig,
			"there is no directory %q in the sandbox to work in", dir)}
	}
	cmd := &exec.Cmd{Dir: dir, Env: []string{}}
	path := ""
	for _, kv := range req.Exec.Env {
		cmd.Env = append(cmd.Env, string(kv))
		if p, ok := strings.CutPrefix(string(kv), "PATH="); ok {
			path = p
		}
	}
	for _, a := range req.Exec.Argv {
		cmd.Args = append(cmd.Args, string(a))
	}
	if req.Files {
		cmd.Path, cmd.Args = wire.Agent, append([]string{wire.Agent, "files"}, cmd.Args...)
		return cmd, nil
	}
	found, err := supervise.Look(cmd.Args[0], path, dir)
	if err != nil {
		not := &remote.Exit{NotStarted: true, Code: 127, Why: err.Error()}
		var no *supervise.NotRunnable
		if errors.As(err, &no) {
			not.Code, not.Why = no.Code, no.Why
		}
		return nil, not
	}
	cmd.Path = found
	return cmd, nil
}

// counters are what the kernel counts in the container's own cgroup; zeros where it shows none.
type counters struct{ oomKills, memoryPeak uint64 }

func readCounters() (c counters) {
	const root = "/sys/fs/cgroup/"
	for _, file := range []string{root + "memory.events", root + "memory/memory.oom_control"} {
		text, _ := os.ReadFile(file)
		for line := range strings.Lines(string(text)) {
			if n, err := fmt.Sscanf(line, "oom_kill %d", &c.oomKills); n == 1 && err == nil {
				break
			}
		}
	}
	for _, file := range []string{root + "memory.peak", root + "memory/memory.max_usage_in_bytes"} {
		if text, err := os.ReadFile(file); err == nil {
			_, _ = fmt.Sscan(string(text), &c.memoryPeak)
		}
	}
	return c
}

// oomScore is this process's oom_score_adj, by which the kernel chooses whom to kill when memory runs out.
type oomScore struct {
	mu   sync.Mutex
	file *os.File
	own  int
}

// openOOMScore must be called while the process still owns its files below /proc.
func openOOMScore() *oomScore {
	f, err := os.OpenFile("/proc/self/oom_score_adj", os.O_RDWR, 0)
	if err != nil {
		return &oomScore{}
	}
	s := &oomScore{file: f}
	if _, err := fmt.Fscan(f, &s.own); err != nil {
		f.Close()
		return &oomScore{}
	}
	return s
}

// raise makes what is started until the returned function is called a likelier victim than this process. Should it not
// be possible, nothing else depends on it.
func (s *oomScore) raise() (lower func()) {
	if s.file == nil {
		return func() {}
	}
	s.mu.Lock()
	_, _ = s.file.WriteAt(fmt.Append(nil, min(s.own+500, 1000)), 0)
	return func() {
		_, _ = s.file.WriteAt(fmt.Append(nil, s.own), 0)
		s.mu.Unlock()
	}
}
