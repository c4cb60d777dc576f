package backend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"

	"github.com/hutch-run/hutch/host/termsafe"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
)

// mostFirstLine bounds the first line of a plugin.
const mostFirstLine = 4 << 10

// mostSocket is the longest path of a socket that works everywhere: 104 bytes on
// macOS, 108 on Linux, with the NUL.
const mostSocket = 103

// socketNames is what go-plugin appends to our directory for a socket.
const socketNames = len("/plugin-dir") + 10 + len("/plugin") + 10

// checkHandshake reads the first line of a plugin, which go-plugin would read too,
// but with other words and less care: the socket must be in dir.
// It returns what was found and what to do about it; found is "" when all is well.
func checkHandshake(line, dir string) (addr, found, fix string) {
	parts := strings.Split(line, "|")
	shown := quoteLine(line)
	core, err := strconv.Atoi(parts[0])
	if len(parts) < 4 || err != nil {
		return "", "it printed " + shown + " where the first line of a backend belongs",
			"it is another program, or one that prints before it calls sdk.Serve"
	}
	if core != plugin.CoreProtocolVersion {
		return "", fmt.Sprintf("it speaks go-plugin's core protocol %d, and this hutch speaks %d", core,
				plugin.CoreProtocolVersion),
			"rebuild the backend with the go-plugin that hutch uses"
	}
	app, err := strconv.Atoi(parts[1])
	if err != nil {
		return "", "it printed " + shown + " where the first line of a backend belongs", "this is a bug in the backend"
	}
	if app != client.Protocol {
		fix = "upgrade the backend"
		if app > client.Protocol {
			fix = "upgrade hutch, or install an older version of the backend"
		}
		return "", fmt.Sprintf("it speaks backend protocol %d, and this hutch speaks %d", app, client.Protocol), fix
	}
	if len(parts) < 5 || parts[4] != string(plugin.ProtocolGRPC) {
		return "", "it does not speak gRPC", "a backend is served by sdk.Serve, or by go-plugin with gRPC"
	}
	addr = filepath.Clean(parts[3])
	if parts[2] != "unix" || filepath.Dir(addr) != dir {
		return "", "it listens on " + quoteLine(parts[2]+" "+parts[3]) +
				", and not on a socket in the directory that it was given",
			"do not use it: others on this machine could talk to it"
	}
	return addr, "", ""
}

// quoteLine shows a line of a stranger, at most 80 bytes of it.
func quoteLine(s string) string {
	const most = 80
	if len(s) > most {
		s = s[:most] + "…"
	}
	return `"` + termsafe.Line(s) + `"`
}

// Backend is a running plugin process. Its calls are those of [client.Client]:
// Describe, Check, Plan, Create, Attach, List, Destroy. Every error they return
// is an *Error that names the backend and the call; errors.As finds an
// *sdk.Error in it when the backend failed, and a *DiedError when its process ended.
type Backend struct {
	*client.Client

	Name   string    // as in hutch-backend-NAME
	Path   string    // of the binary, links resolved
	SHA256 string    // of the binary, in hex
	Facts  sdk.Facts // what it says about itself
	Origin Origin    // how it was found
	PID    int

	proc    *process
	started chan struct{} // closed when proc has said where it listens
	conn    *grpc.ClientConn
	opt     Options

	kept string // what it was started with, for the Keeper; "" without one

	stopOnce sync.Once
	stopErr  error

	mu       sync.Mutex
	stopping bool
	failed   bool   // a call has failed
	gaveUp   error  // why we killed it
	words    string // its last words that an unanswered call was explained with
}

// launch starts the binary and connects to it. declared are the variables that it
// wants to see.
func (p *Pool) launch(ctx context.Context, name string, bin *binary, declared []string) (*Backend, error) {
	if err := checkDir(p.opt.Dir); err != nil {
		return nil, fmt.Errorf("backend %q: %w", name, err)
	}
	file := newLogFile("")
	if p.opt.LogDir != "" {
		file = newLogFile(filepath.Join(p.opt.LogDir, name+".log"))
	}
	proc := &process{
		name: name, bin: bin, logs: newLogs(name, p.opt.Log, file),
		limit: p.opt.StartTimeout, abort: ctx.Done(),
	}
	env := pluginEnv(p.environ, declared)
	kept := ""
	if p.opt.Keeper != nil {
		kept = p.keptKey(bin, env)
		if b := p.opt.Keeper.take(name, kept, p.opt); b != nil {
			return b, nil
		}
	}
	level := p.opt.LogLevel
	if level == hclog.NoLevel {
		level = hclog.Info
	}
	gp := plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig:  plugin.HandshakeConfig{MagicCookieKey: client.CookieKey, MagicCookieValue: client.CookieValue},
		VersionedPlugins: map[int]plugin.PluginSet{client.Protocol: {client.PluginName: &unused{}}},
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		SkipHostEnv:      true,
		StartTimeout:     p.opt.StartTimeout + killTime + time.Second, // ours, in process.Start, comes first
		UnixSocketConfig: &plugin.UnixSocketConfig{TempDir: p.opt.Dir},
		Logger:           hclog.NewNullLogger(), // its words are ours, better said
		RunnerFunc: func(_ hclog.Logger, cmd *exec.Cmd, dir string) (runner.Runner, error) {
			proc.dir = dir
			proc.env = append(env, cmd.Env...)
			proc.env = append(proc.env, client.EnvLogLevel+"="+level.String(), client.EnvTemp+"="+p.opt.Temp)
			return proc, nil
		},
	})
	b := &Backend{Name: name, Path: bin.path, SHA256: bin.sha256, proc: proc, opt: p.opt, started: make(chan struct{}),
		kept: kept}
	// While the process comes up there is nothing to do but to wait, and time for what would have to wait for it later.
	dialled := make(chan error, 1)
	proc.meanwhile = func() {
		dialled <- b.connect()
		client.Warm()
	}
	if _, err := gp.Start(); err != nil {
		if proc.exited != nil && <-dialled == nil {
			b.conn.Close()
		}
		proc.killStrays()
		if proc.dir != "" {
			os.RemoveAll(proc.dir)
		}
		if proc.exited == nil {
			file.close()
		}
		var se *StartError
		if errors.As(err, &se) {
			return nil, se
		}
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, proc.startError("it cannot be started: "+err.Error(), "see its log")
	}
	b.PID = proc.cmd.Process.Pid
	close(b.started)
	if err := <-dialled; err != nil {
		b.proc.stop()
		proc.killStrays()
		os.RemoveAll(proc.dir)
		return nil, err
	}
	b.Client = client.New(b.conn, b.clientOptions())
	return b, nil
}

func (b *Backend) clientOptions() client.Options {
	return client.Options{
		PipeDir:     b.proc.dir,
		HostVersion: b.opt.HostVersion,
		Timeout:     min(b.opt.CallTimeout, quickCall),
		SlowTimeout: b.opt.CallTimeout,
		Silent:      b.silent,
		Slack:       b.opt.Slack,
		Wrap:        b.wrap,
		Overdue:     b.giveUp,
	}
}

// checkDir makes sure that a socket in dir has a path that the kernel takes.
func checkDir(dir string) error {
	if dir == "" {
		return errors.New("no directory for its socket was given")
	}
	if n := len(dir) + socketNames; n > mostSocket {
		return fmt.Errorf("the directory %s is %d bytes too long for a socket; set XDG_RUNTIME_DIR or TMPDIR to a shorter "+
			"one", dir, n-mostSocket)
	}
	return nil
}

// unused stands for the plugin in go-plugin's table: we dial ourselves, since
// go-plugin's client opens two streams that nobody needs before the first call.
type unused struct{ plugin.NetRPCUnsupportedPlugin }

func (*unused) GRPCServer(*plugin.GRPCBroker, *grpc.Server) error { return nil }
func (*unused) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, nil
}

// connect begins to dial the socket, which the process may yet have to make. It returns before the connection stands.
func (b *Backend) connect() error {
	conn, err := grpc.NewClient(client.Target, client.DialOptions(b.dial,
		// A plugin that is stopped, or hangs as a whole, is found out after 15 s.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second,
			PermitWithoutStream: true}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond,
			MaxDelay: time.Second, Multiplier: 2}, MinConnectTimeout: 10 * time.Second}),
	)...)
	if err != nil {
		return err
	}
	conn.Connect() // while the caller does something else
	b.conn = conn
	return nil
}

func (b *Backend) dial(ctx context.Context) (net.Conn, error) {
	select {
	case <-b.started:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", b.proc.addr)
	if err != nil {
		return nil, err
	}
	if err := checkPeer(conn, b.PID); err != nil {
		conn.Close()
		b.giveUp(fmt.Errorf("its socket is not its own: %w", err))
		return nil, err
	}
	return conn, nil
}

// giveUp kills a process that does not do what it must.
func (b *Backend) giveUp(err error) {
	b.mu.Lock()
	if b.gaveUp == nil {
		b.gaveUp = err
	}
	b.mu.Unlock()
	b.proc.killGroup()
}

// leastSilence is reported where a caller is about to give up anyway, as after an interrupt.
const leastSilence = 5 * time.Second

// CallTimeout is how long it may take for one call, but for the running of a command.
func (b *Backend) CallTimeout() time.Duration { return b.opt.CallTimeout }

// silent says that nothing has come of a call yet, and how long that may go on.
func (b *Backend) silent(call string, silent, most time.Duration) {
	if b.opt.Waiting == nil || most == 0 && silent < leastSilence {
		return
	}
	s := fmt.Sprintf("backend %q has not answered %s for %s", b.Name, call, silent.Round(100*time.Millisecond))
	switch {
	case most == b.opt.CallTimeout:
		s += fmt.Sprintf(" and has %s for it (backend_timeout in config.hcl)", most)
	case most > 0:
		s += fmt.Sprintf(" and has %s for it", most)
	}
	if words, log := lastWords(b.proc.logs.lines()), b.Log(); words != "" && b.news(words) {
		s += "; " + words
		if log != "" {
			s += "; log: " + log
		}
	}
	b.opt.Waiting(s)
}

// news marks words as reported, and says whether they were new.
func (b *Backend) news(words string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.words
	b.words = words
	return was != words
}

// dying is how long a broken connection may be ahead of the news that the process ended.
const dying = time.Second

// wrap names backend and call in every error. A broken connection is explained by
// how the process ended; if it has not, it is hung, and is killed.
func (b *Backend) wrap(call string, err error) error {
	b.mu.Lock()
	stopping := b.stopping
	b.failed = true
	b.mu.Unlock()
	if stopping {
		err = ErrStopped
	} else if errors.Is(err, client.ErrLost) {
		t := time.NewTimer(dying)
		defer t.Stop()
		select {
		case <-b.proc.exited:
			err = b.died()
		case <-t.C:
			b.giveUp(errors.New("it did not answer any more, and was killed"))
			select {
			case <-b.proc.exited:
			case <-time.After(killTime):
			}
			err = b.died()
		}
	}
	var wrapped *sdk.Error
	if b.proc != nil && errors.As(err, &wrapped) && error(wrapped) == err {
		err = b.withLog(call, wrapped)
	}
	return &Error{Backend: b.Name, Call: call, Err: err}
}

// withLog adds to a bug of the backend where its log is, and to an answer that did not come what it said last. That a
// backend in which a call hangs cannot be drained has been explained by that call.
func (b *Backend) withLog(call string, e *sdk.Error) *sdk.Error {
	wrapped, log := *e, ""
	switch {
	case errors.Is(e.Err, context.DeadlineExceeded): // it waits for something
		words := lastWords(b.proc.logs.lines())
		if news := b.news(words); call == "drain" && words != "" && !news {
			break
		}
		if words != "" && wrapped.Detail == "" {
			wrapped.Detail = words
		}
		log = b.Log()
	case e.Reason == sdk.ReasonInternal:
		log = b.proc.logs.file.soon(dying)
	}
	if log != "" {
		wrapped.Fix = strings.TrimPrefix(wrapped.Fix+"; log: "+log, "; ")
	}
	return &wrapped
}

// Log is the file with its log, "" when none is kept or nothing was written.
func (b *Backend) Log() string {
	if b.proc == nil {
		return ""
	}
	return b.proc.logs.file.name()
}

func (b *Backend) died() error {
	b.mu.Lock()
	why := b.gaveUp
	b.mu.Unlock()
	d := &DiedError{Why: why, Log: b.Log(), Lines: b.proc.logs.lines()}
	select {
	case <-b.proc.exited:
		d.How = b.proc.how
	default:
		d.How = "it cannot be killed"
	}
	return d
}

// Tap calls f with every line that the backend logs from now on, one at a time,
// until stop has returned. It must be quick, and must not call stop. A Backend
// without a process, which only a test makes, logs nothing.
func (b *Backend) Tap(f func(Line)) (stop func()) {
	if b.proc == nil {
		return func() {}
	}
	return b.proc.logs.tap(f)
}

// Done is closed when the process has ended.
func (b *Backend) Done() <-chan struct{} { return b.proc.exited }

// Stop asks the process to end what runs and to destroy what is not kept, and ends it. It takes no longer than the
// pool's StopTimeout, or until ctx ends: then the process is killed, and its error says that sandboxes may be left.
// Only the first call does something; all return the same. A [Keeper] keeps one that has not failed instead.
func (b *Backend) Stop(ctx context.Context) error {
	b.stopOnce.Do(func() {
		if !b.opt.Keeper.keep(b) {
			b.stopErr = b.stop(ctx)
		}
	})
	return b.stopErr
}

func (b *Backend) stop(ctx context.Context) error {
	var err error
	select {
	case <-b.proc.exited: // nobody is left to drain
	default:
		ctx, cancel := context.WithTimeoutCause(ctx, b.opt.StopTimeout,
			fmt.Errorf("it was not done within %s, and was killed", b.opt.StopTimeout))
		err = b.Drain(ctx)
		cancel()
		// This call has reported that the backend was killed for an unanswered call, so nothing is left either.
		if died := (*DiedError)(nil); errors.As(err, &died) && errors.Is(died.Why, context.DeadlineExceeded) {
			err = nil
		}
	}
	b.mu.Lock()
	b.stopping = true
	b.mu.Unlock()
	// It has nothing left to do; waiting for it to end by itself would cost a millisecond.
	b.proc.stop()
	b.conn.Close()
	return errors.Join(err, os.RemoveAll(b.proc.dir))
}

// passed are the variables of the host's environment that every plugin sees. It
// sees no others but those it declares.
var passed = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR",
	"http_proxy", "https_proxy", "no_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY",
	"SSL_CERT_FILE", "SSL_CERT_DIR",
	"GOCOVERDIR", // so that tests see what a plugin covers
}

// passedPrefixes are the beginnings of further ones.
var passedPrefixes = []string{"LC_", "XDG_"}

// environ makes a map of "NAME=value" entries; the last of a name counts.
func environ(list []string) map[string]string {
	m := make(map[string]string, len(list))
	for _, kv := range list {
		if name, value, ok := strings.Cut(kv, "="); ok && name != "" {
			m[name] = value
		}
	}
	return m
}

// pluginEnv returns the environment of a plugin, sorted. HUTCH_ variables and
// go-plugin's are never passed on, even if declared: they are how hosts speak to plugins.
func pluginEnv(host map[string]string, declared []string) []string {
	var env []string
	for name, value := range host {
		ok := slices.Contains(passed, name) || slices.ContainsFunc(passedPrefixes,
			func(p string) bool { return strings.HasPrefix(name, p) })
		if ok || slices.Contains(declared, name) && !reserved(name) {
			env = append(env, name+"="+value)
		}
	}
	slices.Sort(env)
	return env
}

func reserved(name string) bool {
	return strings.HasPrefix(name, "HUTCH_") || strings.HasPrefix(name, "PLUGIN_") || strings.HasPrefix(name, "LD_")
}

// missing reports whether declared names a variable that the host has and base would withhold.
func missing(host map[string]string, declared []string) bool {
	return len(pluginEnv(host, declared)) > len(pluginEnv(host, nil))
}
