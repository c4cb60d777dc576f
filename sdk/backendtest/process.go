package backendtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
	pb "github.com/hutch-run/hutch/sdk/internal/proto/hutch/backend/v1"
	"github.com/hutch-run/hutch/sdk/plaintext"
)

// Process is a [Target] that starts a compiled plugin. It does so by nothing but
// what docs/writing-a-backend.md says about the handshake, so what passes here works
// with any host that keeps to the document.
type Process struct {
	Path string   // of the executable
	Args []string // for an interpreter; usually empty
	// Env is added to the few variables that every plugin gets: PATH, HOME, USER,
	// LANG, TMPDIR and XDG_*.
	Env []string

	// StartTimeout bounds the time until the handshake; 0 means 10 s.
	StartTimeout time.Duration
}

// Start implements [Target].
func (t *Process) Start(ctx context.Context, o StartOptions) (Plugin, error) {
	dir, err := os.MkdirTemp("/tmp", "hbs-") // short: the path of a socket has at most 103 bytes
	if err != nil {
		return nil, err
	}
	p := &process{dir: dir, done: make(chan struct{})}
	if err := p.start(ctx, t, o); err != nil {
		p.kill()
		os.RemoveAll(dir)
		return nil, fmt.Errorf("%s: %w%s", t.Path, err, p.log.tail())
	}
	return p, nil
}

// process is one plugin process.
type process struct {
	dir      string // private; holds the socket
	cmd      *exec.Cmd
	lifeline *os.File
	conn     *grpc.ClientConn
	log      tailBuffer
	done     chan struct{} // closed when the process is reaped
	once     sync.Once
}

// start follows the document: see "The contract without the SDK" in it.
func (p *process) start(ctx context.Context, t *Process, o StartOptions) error {
	life, keep, err := os.Pipe()
	if err != nil {
		return err
	}
	defer life.Close()
	p.lifeline = keep
	p.cmd = exec.Command(t.Path, t.Args...)
	p.cmd.Dir = p.dir                   // and not /, where a plugin under test that forgets half a path would do harm
	p.cmd.ExtraFiles = []*os.File{life} // descriptor 3
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.Stderr = &p.log
	p.cmd.Env = append(handed(o), t.Env...)
	p.cmd.Env = append(p.cmd.Env,
		client.CookieKey+"="+client.CookieValue,
		client.EnvLifeline+"=3",
		client.EnvLogLevel+"=info",
		"PLUGIN_PROTOCOL_VERSIONS="+fmt.Sprint(client.Protocol),
		"PLUGIN_UNIX_SOCKET_DIR="+p.dir,
	)
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		close(p.done)
		if pe := (*os.PathError)(nil); errors.As(err, &pe) {
			err = pe.Err // the path is said already
		}
		return fmt.Errorf("it cannot be executed: %w", err)
	}
	line := make(chan string, 1)
	go func() {
		r := bufio.NewReader(io.LimitReader(stdout, 4<<10))
		text, _ := r.ReadString('\n')
		line <- text
		io.Copy(io.Discard, stdout) // or a plugin that prints would block one day
		p.cmd.Wait()
		close(p.done)
	}()
	wait := t.StartTimeout
	if wait == 0 {
		wait = 10 * time.Second
	}
	select {
	case text := <-line:
		socket, err := p.handshake(strings.TrimSpace(text))
		if err != nil {
			return err
		}
		return p.dial(socket)
	case <-time.After(wait):
		return fmt.Errorf("it printed no handshake within %s", wait)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// handed is the environment that every plugin gets.
func handed(o StartOptions) []string {
	var out []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		switch {
		case name == "PATH" && o.EmptyPath:
			out = append(out, "PATH=/nonexistent")
		case name == "PATH", name == "HOME", name == "USER", name == "LANG", name == "TMPDIR",
			strings.HasPrefix(name, "XDG_"):
			out = append(out, kv)
		}
	}
	return out
}

// handshake reads CORE|PROTOCOL|NETWORK|ADDRESS|KIND.
func (p *process) handshake(line string) (socket string, err error) {
	f := strings.Split(line, "|")
	switch {
	case len(f) < 5:
		return "", fmt.Errorf("its first line on stdout is %q and not a handshake", line)
	case f[0] != "1" || f[1] != fmt.Sprint(client.Protocol):
		return "", fmt.Errorf("it speaks core protocol %s and backend protocol %s; wanted are 1 and %d",
			f[0], f[1], client.Protocol)
	case f[2] != "unix" || f[4] != "grpc":
		return "", fmt.Errorf("it listens with %s on %s; wanted are grpc on unix", f[4], f[2])
	case filepath.Dir(filepath.Clean(f[3])) != p.dir:
		return "", fmt.Errorf("its socket %s is not in the directory that PLUGIN_UNIX_SOCKET_DIR names", f[3])
	}
	return f[3], nil
}

func (p *process) dial(socket string) error {
	conn, err := grpc.NewClient(client.Target, client.DialOptions(func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	})...)
	p.conn = conn
	return err
}

func (p *process) Conn() grpc.ClientConnInterface { return p.conn }
func (p *process) PID() int                       { return p.cmd.Process.Pid }
func (p *process) Done() <-chan struct{}          { return p.done }
func (p *process) Log() string                    { return p.log.tail() }

// Abandon implements [Plugin].
func (p *process) Abandon() {
	p.lifeline.Close()
	p.conn.Close()
}

// Stop implements [Plugin]: drain, close the lifeline, wait, and kill what is left.
func (p *process) Stop(ctx context.Context) error {
	var err error
	p.once.Do(func() {
		_, derr := pb.NewBackendClient(p.conn).Drain(ctx, &pb.DrainRequest{})
		p.lifeline.Close()
		select {
		case <-p.done: // it may have been about to end, and too late for Drain
		case <-time.After(soon):
			err = errors.Join(derr, fmt.Errorf("the process did not end within %s after Drain", soon))
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		p.conn.Close()
		p.kill()
		if rerr := os.RemoveAll(p.dir); rerr != nil {
			err = errors.Join(err, rerr)
		}
	})
	return err
}

func (p *process) alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// kill ends the process group and waits for the plugin.
func (p *process) kill() {
	if p.lifeline != nil {
		p.lifeline.Close()
	}
	if p.cmd == nil || p.cmd.Process == nil || !p.alive() {
		return
	}
	syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	select {
	case <-p.done:
	case <-time.After(soon): // it hangs in the kernel
	}
}

// tailBuffer keeps the last lines of a log.
type tailBuffer struct {
	mu  sync.Mutex
	buf []byte
}

const mostTail = 4 << 10

func (t *tailBuffer) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if len(t.buf) > mostTail {
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-mostTail:]...)
	}
	return len(p), nil
}

// tail returns the last lines, cleaned for a terminal.
func (t *tailBuffer) tail() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && (!plaintext.Rune(r) || r == utf8.RuneError) {
			return '?'
		}
		return r
	}, string(t.buf))
}

// InProcess is a [Target] whose instances live in this process: make makes a
// backend that shares no memory with the ones made before.
func InProcess(make func() sdk.Backend) Target { return &inProcess{make} }

// inProcess serves backends inside this process, over real gRPC.
type inProcess struct {
	make func() sdk.Backend
}

// Start implements [Target].
func (t *inProcess) Start(_ context.Context, o StartOptions) (Plugin, error) {
	if o.EmptyPath {
		return nil, errors.New("an instance inside the test process cannot have a PATH of its own")
	}
	l, err := client.InProcess(t.make(), client.Options{})
	if err != nil {
		return nil, err
	}
	return &local{Local: l, done: make(chan struct{})}, nil
}

// local is one instance inside this process.
type local struct {
	*client.Local
	once sync.Once
	done chan struct{}
	err  error
}

func (p *local) Conn() grpc.ClientConnInterface { return p.Local.Conn() }
func (p *local) PID() int                       { return 0 }
func (p *local) Done() <-chan struct{}          { return p.done }
func (p *local) Log() string                    { return "" } // it is on the test's own stderr

// Abandon implements [Plugin]: the SDK hears what it hears from its lifeline.
func (p *local) Abandon() {
	p.Break()
	go p.end(sdk.ErrHostGone)
}

// Stop implements [Plugin].
func (p *local) Stop(ctx context.Context) error {
	go p.end(sdk.ErrCancelled)
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *local) end(cause error) {
	p.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		p.err = errors.Join(p.Server().Shutdown(ctx, cause), p.Close())
		close(p.done)
	})
}
