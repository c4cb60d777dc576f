package backendtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
	pb "github.com/hutch-run/hutch/sdk/internal/proto/hutch/backend/v1"
)

const (
	checkTime  = 2 * time.Minute        // after which a check has failed
	soon       = 10 * time.Second       // what should take no time may take, on a busy machine
	shortTerm  = 300 * time.Millisecond // grace of commands that are to be killed
	searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

	// markerName is a variable of every command, by whose value the processes that
	// a check left behind are known.
	markerName = "HUTCH_BACKENDTEST"
)

// C is what a check works with. Its methods end the check when something does not
// go as it must.
type C struct {
	*session
	ctx    context.Context
	id     string // of the check
	dir    string // for everything the check makes on the host
	marker string // value of markerName

	mu       sync.Mutex
	boxes    int
	cleanups []func()
}

// later has f called at the end of the check, last one first.
func (c *C) later(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cleanups = append(c.cleanups, f)
}

// instance is a running plugin with a client for it.
type instance struct {
	Plugin
	*client.Client
	rpc pb.BackendClient
	dir string // of its pipes

	over atomic.Bool // a check has drained or abandoned it
}

// box is a sandbox that a check made.
type box struct {
	*client.Sandbox
	c   *C
	on  *instance
	req *sdk.CreateRequest
}

// request returns what every sandbox of the suite is made from: the configuration
// of the suite, an empty workspace, the strictest network that is claimed, no limits.
func (c *C) request(change ...func(*sdk.CreateRequest)) *sdk.CreateRequest {
	c.mu.Lock()
	c.boxes++
	n := c.boxes
	c.mu.Unlock()
	id := fmt.Sprintf("%s-%s-%d", c.short, strings.ReplaceAll(c.id, "/", "-"), n)
	if len(id) > 60 {
		id = fmt.Sprintf("%s-%s-%d", c.short, id[len(id)-40:], n)
	}
	id = strings.ReplaceAll(strings.ToLower(id), "_", "-")
	req := &sdk.CreateRequest{ID: id, Owner: c.owner, StateDir: filepath.Join(c.dir, "state"+fmt.Sprint(n))}
	req.Config = c.config
	req.Network = sdk.NetworkNone
	if !slices.Contains(c.facts.Networks, sdk.NetworkNone) && len(c.facts.Networks) > 0 {
		req.Network = c.facts.Networks[0]
	}
	switch {
	case slices.Contains(c.facts.Workspaces, sdk.WorkspacePrivate):
		req.Workspace.Mode = sdk.WorkspacePrivate
	case len(c.facts.Workspaces) > 0:
		req.Workspace.Mode = c.facts.Workspaces[0]
	}
	for _, f := range change {
		f(req)
	}
	if err := os.MkdirAll(req.StateDir, 0o700); err != nil {
		c.Fatalf("the suite's own directory: %v", err)
	}
	c.recordBox(req)
	return req
}

// on creates a sandbox on an instance, and destroys it at the end of the check.
func (c *C) boxOn(i *instance, req *sdk.CreateRequest) *box {
	sb, err := c.create(i, req)
	if err != nil {
		c.Fatalf("creating a sandbox: %v", err)
	}
	return &box{Sandbox: sb, c: c, on: i, req: req}
}

// create is boxOn for creations that may fail.
func (c *C) create(i *instance, req *sdk.CreateRequest) (*client.Sandbox, error) {
	h := sdk.Handle{ID: req.ID}
	var mu sync.Mutex
	known := false
	own := *req
	own.Allocated = func(got sdk.Handle) error {
		mu.Lock()
		h, known = got, true
		mu.Unlock()
		if req.Allocated != nil {
			return req.Allocated(got)
		}
		return nil
	}
	c.later(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		mu.Lock()
		defer mu.Unlock()
		if !known {
			return // as a host, which has no handle to destroy by
		}
		i := i
		if req.Keep && (gone(i) || i.over.Load()) {
			i = c.shared() // it outlived its process
		}
		if err := i.Destroy(ctx, h); err != nil && !gone(i) && !i.over.Load() {
			c.complain("destroying the sandbox of %s: %v", c.id, err)
		}
	})
	return i.Create(c.ctx, &own)
}

// box creates a sandbox on the shared instance.
func (c *C) box(change ...func(*sdk.CreateRequest)) *box {
	return c.boxOn(c.shared(), c.request(change...))
}

// fresh starts an instance that this check alone uses.
func (c *C) fresh(o StartOptions) *instance {
	i, err := c.start(c.ctx, o)
	if err != nil {
		c.Fatalf("starting another instance of the backend: %v", err)
	}
	c.later(func() { c.stop(i) })
	return i
}

// kill ends the process of an instance, and waits until whoever started it knows: what is cleaned up after the check asks.
func (c *C) kill(i *instance) {
	syscall.Kill(i.PID(), syscall.SIGKILL)
	c.eventually(soon, "the killed plugin is gone", func() (bool, string) { return gone(i), "it lives" })
}

func gone(i *instance) bool {
	select {
	case <-i.Done():
		return true
	default:
		return false
	}
}

// out is what a command printed and how it ended.
type out struct {
	*sdk.Exit
	stdout, stderr string
}

// how describes the end of a command for a message.
func (o *out) how() string {
	s := fmt.Sprintf("cause %q, code %d", o.Cause, o.Code)
	if o.Signal != "" {
		s += ", signal " + o.Signal
	}
	if o.NotStarted {
		s += ", not started"
	}
	if o.Evidence != "" {
		s += fmt.Sprintf(" (evidence: %s)", o.Evidence)
	}
	if o.stderr != "" {
		s += fmt.Sprintf(", stderr %s", quote(o.stderr))
	}
	return s
}

// command returns what runs a script in the workspace.
func (b *box) command(script string, change ...func(*client.Command)) *client.Command {
	cmd := &client.Command{
		Argv: []string{"/bin/sh", "-c", script}, Env: map[string]string{"PATH": searchPath, markerName: b.c.marker},
		Dir: b.Ready().Workspace, Grace: shortTerm,
	}
	for _, f := range change {
		f(cmd)
	}
	return cmd
}

// exec runs a command to its end; an error of the backend ends the check.
func (b *box) exec(cmd *client.Command) *out {
	o, err := b.tryExec(cmd)
	if err != nil {
		b.c.Fatalf("running %s: %v", quoteArgv(cmd.Argv), err)
	}
	return o
}

func (b *box) tryExec(cmd *client.Command) (*out, error) {
	var stdout, stderr bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout = &stdout
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &stderr
	}
	exit, err := b.Exec(b.c.ctx, cmd)
	if err != nil {
		return nil, err
	}
	return &out{exit, stdout.String(), stderr.String()}, nil
}

// sh runs a script.
func (b *box) sh(script string, change ...func(*client.Command)) *out {
	return b.exec(b.command(script, change...))
}

// must runs a script that has to end well and returns what it printed.
func (b *box) must(script string, change ...func(*client.Command)) string {
	o := b.sh(script, change...)
	if o.Cause != sdk.CauseExited || o.Code != 0 {
		b.c.Fatalf("the script %s ended with %s", quote(script), o.how())
	}
	return o.stdout
}

// running is a command that has been started and has said so on its stdout.
type running struct {
	*client.Exec
	c   *C
	out *lineBuffer
}

// begin starts a script and waits until it prints "ready".
func (b *box) begin(script string, change ...func(*client.Command)) *running {
	r := &running{c: b.c, out: newLineBuffer()}
	cmd := b.command(script, change...)
	cmd.Stdout = r.out
	e, err := b.Start(b.c.ctx, cmd)
	if err != nil {
		b.c.Fatalf("starting %s: %v", quote(script), err)
	}
	r.Exec = e
	b.c.later(func() { e.Stop(sdk.CauseCancelled) })
	r.await("ready")
	return r
}

// await waits for a text on stdout.
func (r *running) await(text string) {
	select {
	case <-r.out.has(text):
	case <-r.Done():
		if !strings.Contains(r.out.String(), text) {
			exit, err := r.Wait()
			r.c.Fatalf("the command ended before it printed %q: %+v %v; it printed %s", text, exit, err, quote(r.out.String()))
		}
	case <-time.After(soon * 2):
		r.c.Fatalf("the command printed %s and not %q within %s", quote(r.out.String()), text, soon*2)
	case <-r.c.ctx.Done():
		r.c.Fatalf("the check took too long")
	}
}

// end waits for the end, at most for so long.
func (r *running) end(within time.Duration) *out {
	select {
	case <-r.Done():
	case <-time.After(within):
		r.c.Fatalf("the command had not ended after %s", within)
	}
	exit, err := r.Wait()
	if err != nil {
		r.c.Fatalf("the command: %v", err)
	}
	return &out{exit, r.out.String(), ""}
}

// lineBuffer collects output and tells when a text has come.
type lineBuffer struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	waits map[string]chan struct{}
}

func newLineBuffer() *lineBuffer { return &lineBuffer{waits: map[string]chan struct{}{}} }

func (l *lineBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf.Write(p)
	for text, ch := range l.waits {
		if strings.Contains(l.buf.String(), text) {
			close(ch)
			delete(l.waits, text)
		}
	}
	return len(p), nil
}

func (l *lineBuffer) has(text string) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	ch, ok := l.waits[text]
	if !ok {
		ch = make(chan struct{})
		if strings.Contains(l.buf.String(), text) {
			close(ch)
		} else {
			l.waits[text] = ch
		}
	}
	return ch
}

func (l *lineBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// wantReason ends the check unless err is an [sdk.Error] with one of the reasons.
func (c *C) wantReason(err error, what string, reasons ...sdk.Reason) *sdk.Error {
	if err == nil {
		c.Fatalf("%s succeeded; it must be refused with reason %v", what, reasons)
	}
	var e *sdk.Error
	if !errors.As(err, &e) {
		c.Fatalf("%s gave an error without a reason: %v", what, err)
	}
	if !slices.Contains(reasons, e.Reason) {
		c.Fatalf("%s gave the reason %q (%v); it must be one of %v", what, e.Reason, err, reasons)
	}
	return e
}

// wantExit ends the check unless the command exited by itself with the code.
func (c *C) wantExit(o *out, code int) {
	if o.Cause != sdk.CauseExited || o.Code != code || o.NotStarted || o.Signal != "" {
		c.Fatalf("got %s; want cause \"exited\", code %d", o.how(), code)
	}
}

// eq ends the check unless both are the same.
func (c *C) eq(what string, got, want string) {
	if got != want {
		c.Fatalf("%s is %s; want %s", what, quote(got), quote(want))
	}
}

// hostDir makes a directory on the host, below the check's own.
func (c *C) hostDir(name string) string {
	d := filepath.Join(c.dir, name)
	if err := os.MkdirAll(d, 0o755); err != nil {
		c.Fatalf("the suite's own directory: %v", err)
	}
	return d
}

// write writes a file on the host.
func (c *C) write(path, content string, mode os.FileMode) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		c.Fatalf("%v", err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		c.Fatalf("%v", err)
	}
	if err := os.Chmod(path, mode); err != nil {
		c.Fatalf("%v", err)
	}
}

// read reads a file on the host.
func (c *C) read(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		c.Fatalf("%v", err)
	}
	return string(b)
}

// eventually ends the check unless ok becomes true in time. It looks often and
// does not hang on one look.
func (c *C) eventually(within time.Duration, what string, ok func() (bool, string)) {
	deadline := time.Now().Add(within)
	for {
		good, seen := ok()
		if good {
			return
		}
		if time.Now().After(deadline) {
			c.Fatalf("%s: still not so after %s: %s", what, within, seen)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func quote(s string) string {
	const most = 300
	if len(s) > most {
		return fmt.Sprintf("%q and %d bytes more", s[:most], len(s)-most)
	}
	return fmt.Sprintf("%q", s)
}

func quoteArgv(argv []string) string {
	var out []string
	for _, a := range argv {
		out = append(out, quote(a))
	}
	return strings.Join(out, " ")
}

func stdin(s string) func(*client.Command) {
	return func(c *client.Command) { c.Stdin = strings.NewReader(s) }
}

func timeout(d time.Duration) func(*client.Command) {
	return func(c *client.Command) { c.Timeout = d }
}

func env(more map[string]string) func(*client.Command) {
	return func(c *client.Command) { maps.Copy(c.Env, more) }
}

func argv(args ...string) func(*client.Command) {
	return func(c *client.Command) { c.Argv = args }
}

func withSource(dir string, mode sdk.WorkspaceMode) func(*sdk.CreateRequest) {
	return func(r *sdk.CreateRequest) { r.Workspace = sdk.Workspace{Source: dir, Mode: mode} }
}

func withLimits(l sdk.Limits) func(*sdk.CreateRequest) {
	return func(r *sdk.CreateRequest) { r.Limits = l }
}

// blocked is a reader that gives nothing until it is closed.
func blocked() (io.Reader, func()) {
	r, w := io.Pipe()
	return r, func() { w.Close() }
}

var semver = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\d+\.\d+\.\d+([-+][0-9A-Za-z.+-]+)?$`) })

// typing is a person at a keyboard.
type typing struct{ w *io.PipeWriter }

func newTyping() (io.Reader, *typing) {
	r, w := io.Pipe()
	return r, &typing{w}
}

func (t *typing) typ(s string) { go t.w.Write([]byte(s)) }
func (t *typing) stop()        { t.w.Close() }
