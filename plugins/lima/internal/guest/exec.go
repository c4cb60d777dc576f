package guest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/lima/internal/wire"
	"github.com/hutch-run/hutch/sdk/contract"
	"github.com/hutch-run/hutch/sdk/limits"
	"github.com/hutch-run/hutch/sdk/supervise/descendants"
	"github.com/hutch-run/hutch/sdk/supervise/procstat"
	"github.com/hutch-run/hutch/sdk/supervise/remote"
)

// call is one command that runs.
type call struct {
	*remote.Call
	init    *exec.Cmd
	control *os.File      // to and from its first process
	gone    chan struct{} // closed when nothing is left of it

	mu sync.Mutex // of what is written to control
}

// exec runs one command to its end.
func (s *server) exec(req wire.Request, c *remote.Call) (exit *remote.Exit) {
	broke := func(err error) *remote.Exit { return &remote.Exit{Err: remote.AsError(err)} }
	if req.Exec == nil || len(req.Exec.Argv) == 0 || !validID(req.ID) {
		return broke(contract.Errorf(contract.ReasonConfig, "there is no command to run"))
	}
	b := box{req.ID, s}
	spec, group, unlock, err := b.open()
	if err != nil {
		return broke(err)
	}
	unlock = sync.OnceFunc(unlock)
	defer unlock()
	run := &call{Call: c, gone: make(chan struct{})}
	defer close(run.gone)
	if err := run.start(s, req.Exec.TTY, spec.Network); err != nil {
		return broke(fmt.Errorf("start a command: %w", err))
	}
	defer run.control.Close()
	before := stats(group)
	wait := sync.OnceFunc(func() { c.Wait(run.init) })
	defer wait()
	abort := func(err error) *remote.Exit {
		run.kill()
		return broke(err)
	}
	forget, err := b.register(run.init.Process.Pid)
	if err != nil {
		return abort(err)
	}
	defer forget()
	if !s.enter(run) {
		return abort(contract.Errorf(contract.ReasonInternal, "the session is over"))
	}
	defer s.leave(run)
	if err := run.tell(newOrder(b, spec, &req, group)); err != nil {
		return abort(err)
	}
	unlock() // from here on a reset of the sandbox finds the command

	go c.Obey(func(ctl remote.Control) { _ = run.tell(ctl) }, run.kill) // one that is gone needs no signal
	exit = run.listen(c.Started)
	wait() // and with that all of its processes are gone
	after := stats(group)
	exit.OOMKills, exit.PIDsHits = after.OOMKills-before.OOMKills, after.PIDsHits-before.PIDsHits
	exit.MemoryPeak, exit.PIDsPeak = after.MemoryPeak, after.PIDsPeak
	return exit
}

func stats(g *limits.Group) limits.Stats {
	s, err := g.Stats()
	if err != nil {
		return limits.Stats{} // without a cgroup nothing is counted
	}
	return s
}

func (s *server) enter(c *call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return false
	}
	s.calls[c] = true
	return true
}

func (s *server) leave(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.calls, c)
}

// start starts the first process of the command's namespaces, which then waits for its order.
func (c *call) start(s *server, tty *remote.Size, network bool) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	theirs := os.NewFile(uintptr(pair[1]), "control")
	defer theirs.Close()
	_ = unix.SetNonblock(pair[0], true) // so that Close wakes a reader
	c.control = os.NewFile(uintptr(pair[0]), "control")
	c.init = exec.Command("/proc/self/exe", "init")
	c.init.Env = []string{}
	c.init.ExtraFiles = []*os.File{theirs}
	c.init.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC,
		Setsid: true}
	if !network {
		c.init.SysProcAttr.Cloneflags |= unix.CLONE_NEWNET
	}
	err = c.Start(c.init, tty, s.user.uid, s.user.gid)
	if err != nil {
		c.control.Close()
	}
	return err
}

// tell sends a line to the command's first process.
func (c *call) tell(v any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return remote.Send(c.control, v)
}

// kill ends the command with everything it started.
func (c *call) kill() { _ = c.init.Process.Kill() } // one that has ended needs none

// listen hears from the command's first process until that is gone.
func (c *call) listen(started func()) *remote.Exit {
	lines := remote.NewLines(c.control)
	for {
		var ev remote.Event
		if err := lines.Next(&ev); err != nil {
			return &remote.Exit{Killed: true}
		}
		if ev.Started {
			started()
		}
		if ev.Exit != nil {
			return ev.Exit
		}
	}
}

// Every command of a sandbox is known by a file that is named after the first process of its namespaces: PID-STARTTIME.
// So another process of this program finds it, and never takes a stranger for it that has got its number.

// register says that pid is the first process of a command. The returned function takes that back.
func (b box) register(pid int) (forget func(), err error) { return register(b.run("commands"), pid) }

func register(dir string, pid int) (forget func(), err error) {
	stat, err := procstat.Of(pid)
	if err != nil {
		return nil, err
	}
	name := filepath.Join(dir, fmt.Sprintf("%d-%d", pid, stat.Start))
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		return nil, err
	}
	return func() { _ = os.Remove(name) }, nil // destroying the sandbox has removed it
}

// killAll kills every command of the sandbox, whichever process started it, and waits until nothing is left of them.
func (b box) killAll(ctx context.Context) error {
	_, err := descendants.Kill(ctx, func() []int { return registered(b.run("commands")) })
	return err
}

// registered lists the first processes of the commands that run.
func registered(dir string) (pids []int) {
	entries, _ := os.ReadDir(dir) // missing before the first command
	for _, e := range entries {
		var pid int
		var start uint64
		if n, _ := fmt.Sscanf(e.Name(), "%d-%d", &pid, &start); n != 2 {
			continue
		}
		if now, err := procstat.Of(pid); err == nil && now.Start == start && !now.Dead() {
			pids = append(pids, pid)
		}
	}
	return pids
}
