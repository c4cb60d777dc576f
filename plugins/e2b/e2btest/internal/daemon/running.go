package daemon

import (
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"github.com/creack/pty"

	pb "github.com/hutch-run/hutch/plugins/e2b/internal/api/process"
)

// endKept is how long a process that has ended can still be connected to.
const endKept = 30 * time.Second

// running is one process that a client has started.
type running struct {
	hub
	info     *pb.ProcessInfo
	cmd      *exec.Cmd
	timedOut atomic.Bool // killed at the client's deadline

	input sync.Mutex // one write at a time; guards what follows
	stdin io.WriteCloser
	tty   *os.File
}

// processes are those of a sandbox, by pid.
type processes struct {
	mu   sync.Mutex
	live map[uint32]*running // from its start until it was waited for
	over map[uint32]*running // ended less than endKept ago
}

func newProcesses() *processes {
	return &processes{live: map[uint32]*running{}, over: map[uint32]*running{}}
}

// list returns the processes that run, by pid.
func (p *processes) list() (out []*pb.ProcessInfo) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pid := range slices.Sorted(maps.Keys(p.live)) {
		out = append(out, p.live[pid].info)
	}
	return out
}

// find returns a process that runs or, when ended is set, did so lately.
func (p *processes) find(s *pb.ProcessSelector, ended bool) (*running, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	by, ok := s.GetSelector().(*pb.ProcessSelector_Pid)
	if !ok {
		return nil, rpcError(connect.CodeUnimplemented, "the local server finds processes by pid only")
	}
	if r := p.live[by.Pid]; r != nil {
		return r, nil
	}
	if r := p.over[by.Pid]; r != nil && ended {
		return r, nil
	}
	return nil, rpcError(connect.CodeNotFound, "process with pid %d not found", by.Pid)
}

// launcher starts a command as envd does: the first to be killed when memory runs out, and at an ordinary priority. A
// command that cannot be executed therefore ends with 127 and is not an error of the call.
var launcher = sync.OnceValue(func() string {
	line := "{ echo 100 > /proc/$$/oom_score_adj; } 2>/dev/null; exec"
	if path, err := exec.LookPath("ionice"); err == nil {
		line += " " + path + " -c 2 -n 4"
	}
	if path, err := exec.LookPath("nice"); err == nil {
		line += " " + path + " -n 0"
	}
	return line + ` "$@"`
})

// newRunning prepares a process of the user; nothing runs yet.
func (d *Daemon) newRunning(req *pb.StartRequest, who *account) (*running, error) {
	settings, config := d.settings(), req.GetProcess()
	cwd := config.GetCwd()
	if cwd == "" {
		cwd = settings.DefaultWorkdir
	}
	dir, err := d.resolve(cwd, who)
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	if st, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil, rpcError(connect.CodeInvalidArgument, "cwd '%s' does not exist", dir)
	} else if err == nil && !st.IsDir() {
		return nil, rpcError(connect.CodeInvalidArgument, "cwd '%s' is not a directory", dir)
	}
	args := append([]string{"-c", launcher(), "sh", config.GetCmd()}, config.GetArgs()...)
	cmd := exec.Command("/bin/sh", args...)
	cmd.Dir = filepath.Clean(dir)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + who.home, "USER=" + who.name, "LOGNAME=" + who.name,
	}
	for _, envs := range []map[string]string{settings.EnvVars, config.GetEnvs()} {
		for k, v := range envs {
			if strings.ContainsRune(k+v, 0) {
				return nil, rpcError(connect.CodeInvalidArgument, "environment variable %q holds a NUL", k)
			}
			cmd.Env = append(cmd.Env, k+"="+v)
		}
	}
	cmd.SysProcAttr = identity(who)
	return &running{cmd: cmd, info: &pb.ProcessInfo{Config: config, Tag: req.Tag}}, nil
}

// identity makes a command run as the user. The sandbox has a single id of the machine, that of this process, so
// another user gets a user namespace in which that id has the other's number.
func identity(who *account) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{}
	if who.uid != os.Getuid() {
		attr.Cloneflags = syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: who.uid, HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: who.gid, HostID: os.Getgid(), Size: 1}}
	}
	return attr
}

// start starts the process and handles its output until its end.
func (p *processes) start(ctx context.Context, r *running, req *pb.StartRequest) error {
	p.mu.Lock() // no process of ours is reaped as an orphan
	var copyOutput func()
	var err error
	if req.Pty != nil {
		copyOutput, err = r.startTerminal(req.GetPty().GetSize())
	} else {
		copyOutput, err = r.startPipes(req.Stdin == nil || req.GetStdin())
	}
	if err != nil {
		p.mu.Unlock()
		return rpcError(connect.CodeInvalidArgument, "error starting process '%s': %w", req.GetProcess().GetCmd(), err)
	}
	r.info.Pid = uint32(r.cmd.Process.Pid)
	p.live[r.info.Pid] = r
	p.mu.Unlock()
	// The deadline is the process's, not the stream's: it holds when no client listens any more.
	stop := func() bool { return true }
	if at, ok := ctx.Deadline(); ok {
		stop = time.AfterFunc(time.Until(at), func() {
			r.timedOut.Store(true)
			_ = r.cmd.Process.Kill() // the leader only
		}).Stop
	}
	go func() {
		copyOutput()
		err := r.cmd.Wait()
		stop()
		p.ended(r, err)
	}()
	return nil
}

// ended reports the end; the process can be connected to for endKept.
func (p *processes) ended(r *running, err error) {
	end := &pb.ProcessEvent_EndEvent{Status: "unknown"}
	if s := r.cmd.ProcessState; s != nil {
		end.ExitCode, end.Exited, end.Status = int32(s.ExitCode()), s.Exited(), s.String()
	}
	if err != nil {
		end.Error = new(err.Error())
	}
	pid := r.info.GetPid()
	p.mu.Lock()
	delete(p.live, pid)
	p.over[pid] = r
	p.mu.Unlock()
	time.AfterFunc(endKept, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.over[pid] == r {
			delete(p.over, pid)
		}
	})
	r.input.Lock()
	r.closeInput()
	r.input.Unlock()
	r.report(&pb.ProcessEvent{Event: &pb.ProcessEvent_End{End: end}})
}

// closeInput closes the process's input. The caller holds r.input.
func (r *running) closeInput() {
	if r.stdin != nil {
		r.stdin.Close()
		r.stdin = nil
	}
	if r.tty != nil {
		r.tty.Close()
		r.tty = nil
	}
}

// startPipes starts the process with pipes; the function that it returns copies the output until all writers are gone.
func (r *running) startPipes(stdin bool) (copyOutput func(), err error) {
	stdout, stdoutEnd, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer stdoutEnd.Close()
	stderr, stderrEnd, err := os.Pipe()
	if err != nil {
		stdout.Close()
		return nil, err
	}
	defer stderrEnd.Close()
	r.cmd.Stdout, r.cmd.Stderr = stdoutEnd, stderrEnd
	if stdin {
		r.stdin, err = r.cmd.StdinPipe()
	}
	if err == nil {
		err = r.cmd.Start()
	}
	if err != nil {
		stdout.Close()
		stderr.Close()
		return nil, err
	}
	return func() {
		var wg sync.WaitGroup
		wg.Go(func() {
			r.read(stdout, 32<<10, func(b []byte) *pb.ProcessEvent_DataEvent {
				return &pb.ProcessEvent_DataEvent{Output: &pb.ProcessEvent_DataEvent_Stdout{Stdout: b}}
			})
		})
		r.read(stderr, 32<<10, func(b []byte) *pb.ProcessEvent_DataEvent {
			return &pb.ProcessEvent_DataEvent{Output: &pb.ProcessEvent_DataEvent_Stderr{Stderr: b}}
		})
		wg.Wait()
	}, nil
}

func (r *running) startTerminal(size *pb.PTY_Size) (copyOutput func(), err error) {
	if r.tty, err = pty.StartWithSize(r.cmd, winsize(size)); err != nil {
		return nil, err
	}
	tty := &terminal{tty: r.tty}
	return func() {
		r.read(tty, 16<<10, func(b []byte) *pb.ProcessEvent_DataEvent {
			return &pb.ProcessEvent_DataEvent{Output: &pb.ProcessEvent_DataEvent_Pty{Pty: b}}
		})
	}, nil
}

// terminal is the master's side of one. The kernel looks for bytes first, and then whether a process still has the
// other side open: it returns what is written and closed in between only to the next read. So an end counts when two
// reads in a row report it.
type terminal struct {
	tty   io.Reader
	ended bool
}

// Read implements [io.Reader].
func (t *terminal) Read(b []byte) (int, error) {
	n, err := t.tty.Read(b)
	if n == 0 && err != nil && !t.ended {
		t.ended = true
		n, err = t.tty.Read(b)
	}
	if n > 0 {
		t.ended = false
	}
	return n, err
}

// Close implements [io.Closer]: closeInput closes the terminal.
func (t *terminal) Close() error { return nil }

// read reports what comes out of f until its end.
func (r *running) read(f io.ReadCloser, chunk int, event func([]byte) *pb.ProcessEvent_DataEvent) {
	defer f.Close()
	for {
		b := make([]byte, chunk) // a new one each time: listeners still hold the last
		n, err := f.Read(b)
		if n > 0 {
			r.report(&pb.ProcessEvent{Event: &pb.ProcessEvent_Data{Data: event(b[:n])}})
		}
		if err != nil { // a terminal ends with EIO
			return
		}
	}
}

// hub hands the events of one process to its current listeners. Later listeners get nothing but the end. As with envd,
// a listener that does not take its events blocks the process.
type hub struct {
	mu        sync.Mutex
	listeners map[*listener]struct{}
	end       *pb.ProcessEvent
}

// listener is one stream that is notified of a process.
type listener struct {
	events chan *pb.ProcessEvent
	gone   chan struct{} // closed when the stream is over
}

// listen adds a listener; of a process that has ended it returns the end instead.
func (h *hub) listen() (*listener, *pb.ProcessEvent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.end != nil {
		return nil, h.end
	}
	l := &listener{events: make(chan *pb.ProcessEvent), gone: make(chan struct{})}
	if h.listeners == nil {
		h.listeners = map[*listener]struct{}{}
	}
	h.listeners[l] = struct{}{}
	return l, nil
}

func (h *hub) leave(l *listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.listeners, l)
	close(l.gone)
}

// report gives an event to all listeners, and keeps the end for later ones.
func (h *hub) report(event *pb.ProcessEvent) {
	h.mu.Lock()
	if event.GetEnd() != nil {
		h.end = event
	}
	to := slices.Collect(maps.Keys(h.listeners))
	h.mu.Unlock()
	for _, l := range to {
		select {
		case l.events <- event:
		case <-l.gone:
		}
	}
}
