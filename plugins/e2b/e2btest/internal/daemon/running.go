package daemon

import (
	"context"
	"errors"
	"fmt"
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

	"github.com/hutch-run/hutch/plugins/e2b/internal/api/process"
)

// endKept is how long a process that has ended can still be connected to.
const endKept = 30 * time.Second

// running is one process that a client has started.
type running struct {
	hub
	info     *process.ProcessInfo
	cmd      *exec.Cmd
	timedOut atomic.Bool // killed because its time was over

	input sync.Mutex // one write at a time; guards what follows
	stdin io.WriteCloser
	tty   *os.File
}

// processes are those of a sandbox, by pid.
type processes struct {
	mu   sync.Mutex
	live map[uint32]*running
	over map[uint32]*running // ended less than endKept ago
	kids *children
}

func newProcesses() *processes {
	return &processes{live: map[uint32]*running{}, over: map[uint32]*running{}, kids: newChildren()}
}

// list returns the processes that run, by pid.
func (p *processes) list() (out []*process.ProcessInfo) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pid := range slices.Sorted(maps.Keys(p.live)) {
		out = append(out, p.live[pid].info)
	}
	return out
}

// find returns a process that runs or, when ended is set, did so lately.
func (p *processes) find(s *process.ProcessSelector, ended bool) (*running, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch by := s.GetSelector().(type) {
	case *process.ProcessSelector_Pid:
		if r := p.live[by.Pid]; r != nil {
			return r, nil
		}
		if r := p.over[by.Pid]; r != nil && ended {
			return r, nil
		}
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("process with pid %d not found", by.Pid))
	case *process.ProcessSelector_Tag:
		for _, r := range p.live {
			if r.info.Tag == nil {
				continue
			}
			if *r.info.Tag == by.Tag {
				return r, nil
			}
			break // envd looks no further than the first process that has another tag
		}
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("process with tag %s not found", by.Tag))
	}
	return nil, connect.NewError(connect.CodeUnimplemented, fmt.Errorf("invalid input type %T", s.GetSelector()))
}

// launcher makes a command what envd makes of it: the first to be killed when memory runs out, and at an ordinary
// priority. A command that cannot be executed therefore ends with 127 and is no error of the call.
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
func (d *Daemon) newRunning(req *process.StartRequest, who *account) (*running, error) {
	settings := d.settings()
	config := req.GetProcess()
	cwd := config.GetCwd()
	if cwd == "" {
		cwd = settings.DefaultWorkdir
	}
	dir, err := d.resolve(cwd, who)
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	if st, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("cwd '%s' does not exist", dir))
	} else if err == nil && !st.IsDir() {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("cwd '%s' is not a directory", dir))
	}
	cmd := exec.Command("/bin/sh", append([]string{"-c", launcher(), "sh", config.GetCmd()}, config.GetArgs()...)...)
	cmd.Dir = filepath.Clean(dir)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + who.home, "USER=" + who.name, "LOGNAME=" + who.name}
	for _, envs := range []map[string]string{settings.EnvVars, config.GetEnvs()} {
		for _, k := range slices.Sorted(maps.Keys(envs)) {
			if strings.ContainsRune(k+envs[k], 0) {
				return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("environment variable %q holds a NUL", k))
			}
			cmd.Env = append(cmd.Env, k+"="+envs[k])
		}
	}
	cmd.SysProcAttr = identity(who)
	return &running{cmd: cmd, info: &process.ProcessInfo{Config: config, Tag: req.Tag}}, nil
}

// identity makes a command run as the user. The sandbox has one id of the machine only, which is that of this process,
// so another user is one in its own user namespace in which that id has the other's number.
func identity(who *account) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{}
	if who.uid != os.Getuid() {
		attr.Cloneflags = syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: who.uid, HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: who.gid, HostID: os.Getgid(), Size: 1}}
	}
	return attr
}

// start starts the process and sees to its output until its end.
func (p *processes) start(ctx context.Context, r *running, req *process.StartRequest) error {
	var done func()
	var err error
	if req.Pty != nil {
		done, err = r.startTerminal(p.kids, req.GetPty().GetSize())
	} else {
		done, err = r.startPipes(p.kids, req.Stdin == nil || req.GetStdin())
	}
	if err != nil {
		return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("error starting process '%s': %w", req.GetProcess().GetCmd(), err))
	}
	r.info.Pid = uint32(r.cmd.Process.Pid)
	p.mu.Lock()
	p.live[r.info.Pid] = r
	p.mu.Unlock()
	// The time is that of the process and not of the stream: it is over even when nobody listens any more.
	stop := func() bool { return true }
	if at, ok := ctx.Deadline(); ok {
		stop = time.AfterFunc(time.Until(at), func() {
			r.timedOut.Store(true)
			_ = r.cmd.Process.Kill() // the leader only
		}).Stop
	}
	go func() {
		done()
		err := p.kids.wait(r.cmd)
		stop()
		p.ended(r, err)
	}()
	return nil
}

// ended reports the end; the process can be connected to for a while yet.
func (p *processes) ended(r *running, err error) {
	end := &process.ProcessEvent_EndEvent{Status: "unknown"}
	if s := r.cmd.ProcessState; s != nil {
		end.ExitCode, end.Exited, end.Status = int32(s.ExitCode()), s.Exited(), s.String()
	}
	if err != nil {
		text := err.Error()
		end.Error = &text
	}
	pid := r.info.Pid
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
	if r.stdin != nil {
		r.stdin.Close()
		r.stdin = nil
	}
	if r.tty != nil {
		r.tty.Close()
		r.tty = nil
	}
	r.input.Unlock()
	r.tell(&process.ProcessEvent{Event: &process.ProcessEvent_End{End: end}})
}

// startPipes starts the process with pipes; what it returns waits until nobody holds its output any more.
func (r *running) startPipes(kids *children, stdin bool) (wait func(), err error) {
	var outs [2]*os.File
	for i, to := range []*io.Writer{&r.cmd.Stdout, &r.cmd.Stderr} {
		out, in, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		defer in.Close()
		*to, outs[i] = in, out
	}
	if stdin {
		if r.stdin, err = r.cmd.StdinPipe(); err != nil {
			return nil, err
		}
	}
	if err := kids.start(r.cmd, r.cmd.Start); err != nil {
		outs[0].Close()
		outs[1].Close()
		return nil, err
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		r.read(outs[0], 32<<10, func(b []byte) *process.ProcessEvent_DataEvent {
			return &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Stdout{Stdout: b}}
		})
	})
	wg.Go(func() {
		r.read(outs[1], 32<<10, func(b []byte) *process.ProcessEvent_DataEvent {
			return &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Stderr{Stderr: b}}
		})
	})
	return wg.Wait, nil
}

func (r *running) startTerminal(kids *children, size *process.PTY_Size) (wait func(), err error) {
	err = kids.start(r.cmd, func() error {
		r.tty, err = pty.StartWithSize(r.cmd, &pty.Winsize{Cols: uint16(size.GetCols()), Rows: uint16(size.GetRows())})
		return err
	})
	if err != nil {
		return nil, err
	}
	tty := &terminal{tty: r.tty}
	return func() {
		r.read(tty, 16<<10, func(b []byte) *process.ProcessEvent_DataEvent {
			return &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Pty{Pty: b}}
		})
	}, nil
}

// terminal is the master's side of one. The kernel looks for bytes first, and then whether anybody still has the other
// side open: what is written and closed in between it reports only when it is asked again. So an end counts when it was
// told twice.
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

// Close implements [io.Closer]: the client that types closes the terminal.
func (t *terminal) Close() error { return nil }

// read says what comes out of f until its end.
func (r *running) read(f io.ReadCloser, chunk int, event func([]byte) *process.ProcessEvent_DataEvent) {
	for {
		b := make([]byte, chunk) // a new one each time: listeners still hold the last
		n, err := f.Read(b)
		if n > 0 {
			r.tell(&process.ProcessEvent{Event: &process.ProcessEvent_Data{Data: event(b[:n])}})
		}
		if err != nil { // a terminal ends with EIO
			break
		}
	}
	f.Close()
}
