package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/yamux"
	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/plugins/lima/internal/wire"
	"github.com/hutch-run/hutch/sdk/limits"
	"github.com/hutch-run/hutch/sdk/supervise"
	"github.com/hutch-run/hutch/sdk/supervise/procstat"
)

// streamKey distinguishes the streams of a command.
type streamKey struct {
	call uint64
	op   wire.Op
}

// pending is a stream that a command will use: what is left to read from it after its first line, and the stream
// itself.
type pending struct {
	*yamux.Stream
	rest io.Reader
}

// slot is where a stream and its command meet, whichever comes first.
func (s *server) slot(k streamKey) chan *pending {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := s.streams[k]
	if ch == nil {
		ch = make(chan *pending, 1)
		s.streams[k] = ch
	}
	return ch
}

func (s *server) deliver(k streamKey, p *pending) {
	select {
	case s.slot(k) <- p:
	default: // a second one of this name: the backend's mistake
		p.Close()
	}
}

// streamWait bounds the wait for a stream that the backend opens together with its command.
const streamWait = time.Minute

func (s *server) take(k streamKey) (*pending, error) {
	ch := s.slot(k)
	defer func() {
		s.mu.Lock()
		delete(s.streams, k)
		s.mu.Unlock()
	}()
	timer := time.NewTimer(streamWait)
	defer timer.Stop()
	select {
	case p := <-ch:
		return p, nil
	case <-timer.C:
		return nil, fmt.Errorf("the backend opened no %s for the command %d", k.op, k.call)
	}
}

// call is one command that runs.
type call struct {
	init     *exec.Cmd
	control  *os.File // to and from its first process
	terminal *supervise.Terminal
	gone     chan struct{} // closed when nothing is left of it

	mu     sync.Mutex // of what is written to control
	killed bool
}

// exec runs one command and reports its end.
func (s *server) exec(req wire.Request, stream *yamux.Stream, in *wire.Lines) {
	var streams [3]*pending
	for i, op := range []wire.Op{wire.OpStdin, wire.OpStdout, wire.OpStderr} {
		p, err := s.take(streamKey{req.Call, op})
		if err != nil {
			_ = wire.Send(stream, wire.Event{Exit: &wire.Exit{Err: wire.AsError(err)}})
			return
		}
		defer p.Close()
		streams[i] = p
	}
	exit := s.runCommand(req, stream, in, streams)
	for _, p := range streams[1:] {
		p.Close() // all output is under way before the end is reported
	}
	_ = wire.Send(stream, wire.Event{Exit: exit}) // a backend that is gone is noticed by the session
}

func (s *server) runCommand(req wire.Request, stream *yamux.Stream, in *wire.Lines, streams [3]*pending) *wire.Exit {
	broke := func(err error) *wire.Exit { return &wire.Exit{Err: wire.AsError(err)} }
	if req.Exec == nil || len(req.Exec.Argv) == 0 || !validID(req.ID) {
		return broke(wire.Errorf(wire.ReasonConfig, "there is no command to run"))
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
	io3, err := c.start(s, req.Exec, spec.Network)
	if err != nil {
		return broke(fmt.Errorf("start a command: %w", err))
	}
	defer c.control.Close()
	before := stats(group)
	waited := false
	wait := func() {
		if !waited {
			waited = true
			_ = c.init.Wait() // how the command ended was reported before
		}
	}
	defer wait()
	forget, err := b.register(c.init.Process.Pid)
	if err != nil {
		c.kill()
		io3.close()
		return broke(err)
	}
	defer forget()
	if !s.enter(c) {
		c.kill()
		io3.close()
		return broke(wire.Errorf(wire.ReasonInternal, "the session is over"))
	}
	defer s.leave(c)
	order := newOrder(b, spec, req.Exec, group)
	if err := c.tell(order); err != nil {
		c.kill()
		io3.close()
		return broke(err)
	}
	unlock() // from here on a reset of the sandbox finds the command

	stop := make(chan struct{})
	defer close(stop)
	output := io3.copy(c, streams)
	go c.obey(in, io3, stop)
	exit := c.listen(func() { _ = wire.Send(stream, wire.Event{Started: true}) })
	wait() // and with that all of its processes are gone
	io3.finish(output)
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
func (c *call) start(s *server, e *wire.Exec, network bool) (_ *stdPipes, err error) {
	p := &stdPipes{}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if e.TTY != nil {
		if c.terminal, err = supervise.OpenTerminal(e.TTY.Rows, e.TTY.Cols); err != nil {
			return nil, err
		}
		if err := c.terminal.Slave.Chown(s.user.uid, s.user.gid); err != nil {
			return nil, err
		}
		p.terminal = c.terminal
	} else if err := p.open(); err != nil {
		return nil, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	theirs := os.NewFile(uintptr(pair[1]), "control")
	defer theirs.Close()
	if err := unix.SetNonblock(pair[0], true); err != nil {
		return nil, err
	}
	c.control = os.NewFile(uintptr(pair[0]), "control")
	c.init = exec.Command("/proc/self/exe", "init")
	c.init.Env = []string{}
	c.init.Stdin, c.init.Stdout, c.init.Stderr = p.theirs()
	c.init.ExtraFiles = []*os.File{theirs}
	c.init.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC, Setsid: true}
	if !network {
		c.init.SysProcAttr.Cloneflags |= unix.CLONE_NEWNET
	}
	if err := c.init.Start(); err != nil {
		c.control.Close()
		return nil, err
	}
	p.closeTheirs()
	return p, nil
}

// tell sends a line to the command's first process.
func (c *call) tell(v any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return wire.Send(c.control, v)
}

// kill ends the command with everything it started.
func (c *call) kill() {
	c.mu.Lock()
	c.killed = true
	c.mu.Unlock()
	_ = c.init.Process.Kill() // one that has ended needs none
}

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
func (c *call) obey(in *wire.Lines, p *stdPipes, stop <-chan struct{}) {
	for {
		var ctl wire.Control
		if err := in.Next(&ctl); err != nil {
			select {
			case <-stop: // the command has ended
			default:
				c.kill() // the backend broke off
			}
			return
		}
		switch {
		case ctl.Kill:
			c.kill()
		case ctl.End:
			_ = c.tell(wire.Control{End: true}) // one that is gone needs nothing
			go func() {
				timer := time.NewTimer(ctl.Grace)
				defer timer.Stop()
				select {
				case <-timer.C:
					c.kill()
				case <-stop:
				}
			}()
		case ctl.Signal > 0:
			_ = c.tell(wire.Control{Signal: ctl.Signal})
		case ctl.Resize != nil && c.terminal != nil:
			_ = c.terminal.Resize(ctl.Resize.Rows, ctl.Resize.Cols)
		case ctl.Shut != "":
			p.shut(ctl.Shut)
		}
	}
}

// stdPipes are the standard streams of a command: three pipes, or a terminal.
type stdPipes struct {
	terminal *supervise.Terminal
	ours     [3]*os.File
	others   [3]*os.File
}

func (p *stdPipes) open() error {
	for i := range p.ours {
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		if i == 0 {
			r, w = w, r
		}
		p.ours[i], p.others[i] = r, w
	}
	return nil
}

func (p *stdPipes) theirs() (in, out, errs *os.File) {
	if p.terminal != nil {
		return p.terminal.Slave, p.terminal.Slave, p.terminal.Slave
	}
	return p.others[0], p.others[1], p.others[2]
}

func (p *stdPipes) closeTheirs() {
	if p.terminal != nil {
		p.terminal.Slave.Close()
	}
	for _, f := range p.others {
		if f != nil {
			f.Close()
		}
	}
}

func (p *stdPipes) close() {
	p.closeTheirs()
	if p.terminal != nil {
		p.terminal.Master.Close()
	}
	for _, f := range p.ours {
		if f != nil {
			f.Close()
		}
	}
}

// shut lets go of a stream that nobody reads: who writes to it gets SIGPIPE.
func (p *stdPipes) shut(op wire.Op) {
	if p.terminal != nil {
		return // the terminal takes it, and it goes nowhere
	}
	switch op {
	case wire.OpStdout:
		p.ours[1].Close()
	case wire.OpStderr:
		p.ours[2].Close()
	}
}

// copy carries the bytes between the streams and the command. The result waits for the end of all output.
func (p *stdPipes) copy(c *call, streams [3]*pending) *sync.WaitGroup {
	var output sync.WaitGroup
	if p.terminal != nil {
		output.Go(func() { _, _ = p.terminal.Output(streams[1]) })
		go func() {
			if _, err := io.Copy(p.terminal.Master, streams[0].rest); err == nil {
				_, _ = p.terminal.Master.Write([]byte{4}) // the end of input is ^D on a terminal
			}
			streams[0].Close()
		}()
		return &output
	}
	for i := 1; i < 3; i++ {
		output.Go(func() {
			_, err := io.CopyBuffer(writerOnly{streams[i]}, readerOnly{p.ours[i]}, make([]byte, 128<<10))
			if err != nil && !errors.Is(err, os.ErrClosed) {
				p.ours[i].Close() // the backend is gone
			}
		})
	}
	go func() {
		_, _ = io.CopyBuffer(writerOnly{p.ours[0]}, readerOnly{streams[0].rest}, make([]byte, 128<<10)) // a command need not read all
		p.ours[0].Close()
		streams[0].Close()
	}()
	return &output
}

// writerOnly and readerOnly keep io.Copy from looking for shortcuts that pipes and streams do not have.
type (
	writerOnly struct{ io.Writer }
	readerOnly struct{ io.Reader }
)

// finish waits for the rest of the output, once no process holds its other ends, and closes everything.
func (p *stdPipes) finish(output *sync.WaitGroup) {
	output.Wait()
	p.close()
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
func (b box) killAll(ctx context.Context) error { return killAll(ctx, b.run("commands")) }

func killAll(ctx context.Context, dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var fds []int
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	for _, e := range entries {
		pidText, start, _ := strings.Cut(e.Name(), "-")
		pid, err := strconv.Atoi(pidText)
		if err != nil {
			continue
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err == unix.ESRCH {
			continue
		}
		if err != nil {
			return fmt.Errorf("find the command %d: %w", pid, err)
		}
		fds = append(fds, fd)
		if now, err := procstat.Of(pid); err != nil || strconv.FormatUint(now.Start, 10) != start {
			continue // another one has its number
		}
		if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && err != unix.ESRCH {
			return fmt.Errorf("kill the command %d: %w", pid, err)
		}
		if err := waitGone(ctx, fd); err != nil {
			return fmt.Errorf("the command %d does not end: %w", pid, err)
		}
	}
	return nil
}

// waitGone waits until the process behind a pidfd has ended.
func waitGone(ctx context.Context, fd int) error {
	for ctx.Err() == nil {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		if err != nil && err != unix.EINTR {
			return err
		}
		if n > 0 {
			return nil
		}
	}
	return context.Cause(ctx)
}
