package guest

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/hashicorp/yamux"
	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/lima/internal/wire"
	"github.com/hutch-run/hutch/sdk/contract"
	"github.com/hutch-run/hutch/sdk/limits"
	"github.com/hutch-run/hutch/sdk/supervise"
	"github.com/hutch-run/hutch/sdk/supervise/descendants"
	"github.com/hutch-run/hutch/sdk/supervise/procstat"
)

// call is one command that runs.
type call struct {
	init     *exec.Cmd
	control  *os.File // to and from its first process
	terminal *supervise.Terminal
	copied   sync.WaitGroup // of what the terminal prints
	gone     chan struct{}  // closed when nothing is left of it

	mu sync.Mutex // of what is written to control
}

// exec runs one command and reports its end. std are its standard streams.
func (s *server) exec(req wire.Request, stream *yamux.Stream, in *wire.Lines, std [3]*yamux.Stream) {
	defer stream.Close()
	exit := s.runCommand(req, stream, in, std)
	for _, p := range std {
		p.Close() // all output is under way before the end is reported
	}
	_ = wire.Send(stream, wire.Event{Exit: exit}) // a backend that is gone is noticed by the session
}

func (s *server) runCommand(req wire.Request, stream *yamux.Stream, in *wire.Lines, std [3]*yamux.Stream) *wire.Exit {
	broke := func(err error) *wire.Exit { return &wire.Exit{Err: wire.AsError(err)} }
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
	c := &call{gone: make(chan struct{})}
	defer close(c.gone)
	if err := c.start(s, req.Exec, spec.Network, std); err != nil {
		return broke(fmt.Errorf("start a command: %w", err))
	}
	defer c.control.Close()
	before := stats(group)
	wait := sync.OnceFunc(c.wait)
	defer wait()
	abort := func(err error) *wire.Exit {
		c.kill()
		return broke(err)
	}
	forget, err := b.register(c.init.Process.Pid)
	if err != nil {
		return abort(err)
	}
	defer forget()
	if !s.enter(c) {
		return abort(contract.Errorf(contract.ReasonInternal, "the session is over"))
	}
	defer s.leave(c)
	if err := c.tell(newOrder(b, spec, req.Exec, group)); err != nil {
		return abort(err)
	}
	unlock() // from here on a reset of the sandbox finds the command

	stop := make(chan struct{})
	defer close(stop)
	go c.obey(in, std, stop)
	exit := c.listen(func() { _ = wire.Send(stream, wire.Event{Started: true}) })
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
func (c *call) start(s *server, e *wire.Exec, network bool, std [3]*yamux.Stream) error {
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
	c.init.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC, Setsid: true}
	if !network {
		c.init.SysProcAttr.Cloneflags |= unix.CLONE_NEWNET
	}
	stdin, err := c.attach(s, e.TTY, std)
	if err == nil {
		err = c.init.Start()
	}
	if c.terminal != nil {
		c.terminal.Slave.Close() // or the end of its output would never be seen
	}
	if err != nil {
		c.control.Close()
		c.closeTerminal()
		return err
	}
	if c.terminal != nil {
		c.copied.Go(func() { _, _ = c.terminal.Output(std[1]) })
	}
	go func() { // a command need not read all
		if wire.Copy(stdin, std[0]) == nil && c.terminal != nil {
			_, _ = stdin.Write([]byte{4}) // the end of input is ^D on a terminal
			return
		}
		if c.terminal == nil {
			stdin.Close()
		}
	}()
	return nil
}

// attach gives the command a terminal, or pipes from and to its streams. What it reads is to be written to the result.
func (c *call) attach(s *server, tty *wire.Size, std [3]*yamux.Stream) (stdin io.WriteCloser, err error) {
	if tty == nil {
		c.init.Stdout, c.init.Stderr = output{std[1]}, output{std[2]}
		return c.init.StdinPipe()
	}
	if c.terminal, err = supervise.OpenTerminal(tty.Rows, tty.Cols); err != nil {
		return nil, err
	}
	slave := c.terminal.Slave
	c.init.Stdin, c.init.Stdout, c.init.Stderr = slave, slave, slave
	return c.terminal.Master, slave.Chown(s.user.uid, s.user.gid)
}

// output is a stream of what a command prints. Once it is closed who prints more gets SIGPIPE.
type output struct{ *yamux.Stream }

// ReadFrom implements [io.ReaderFrom].
func (o output) ReadFrom(r io.Reader) (int64, error) { return 0, wire.Copy(o.Stream, r) }

// wait waits until nothing is left of the command and all its output is under way. How it ended was reported before.
func (c *call) wait() {
	_ = c.init.Wait()
	c.copied.Wait()
	c.closeTerminal()
}

func (c *call) closeTerminal() {
	if c.terminal != nil {
		c.terminal.Close()
	}
}

// tell sends a line to the command's first process.
func (c *call) tell(v any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return wire.Send(c.control, v)
}

// kill ends the command with everything it started.
func (c *call) kill() { _ = c.init.Process.Kill() } // one that has ended needs none

// listen hears from the command's first process until that is gone.
func (c *call) listen(started func()) *wire.Exit {
	lines := wire.NewLines(c.control)
	for {
		var ev wire.Event
		if err := lines.Next(&ev); err != nil {
			return &wire.Exit{Killed: true}
		}
		if ev.Started {
			started()
		}
		if ev.Exit != nil {
			return ev.Exit
		}
	}
}

// obey does what the backend says while the command runs.
func (c *call) obey(in *wire.Lines, std [3]*yamux.Stream, stop <-chan struct{}) {
	for {
		var ctl wire.Control
		if err := in.Next(&ctl); err != nil {
			select {
			case <-stop: // the command has ended
			default: // the backend broke off, and reads nothing any more
				c.kill()
				std[1].Close()
				std[2].Close()
			}
			return
		}
		switch {
		case ctl.Kill:
			c.kill()
		case ctl.Signal > 0:
			_ = c.tell(ctl) // one that is gone needs nothing
		case ctl.Resize != nil && c.terminal != nil:
			_ = c.terminal.Resize(ctl.Resize.Rows, ctl.Resize.Cols)
		case (ctl.Shut == 1 || ctl.Shut == 2) && c.terminal == nil: // a terminal takes all, and it goes nowhere
			std[ctl.Shut].Close()
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
