package backendtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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
	defaultCheckTime = 2 * time.Minute

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

	alone    bool // no other check runs now
	failed   atomic.Bool
	mu       sync.Mutex
	boxes    int
	ended    map[string]bool // sandboxes that the check itself has destroyed, by id
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
	return c.createWith(c.ctx, i, req)
}

func (c *C) createWith(ctx context.Context, i *instance, req *sdk.CreateRequest) (*client.Sandbox, error) {
	h := sdk.Handle{ID: req.ID}
	c.end(req.ID, false)
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
		if !known || c.hasEnded(req.ID) {
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
	return i.Create(ctx, &own)
}

// box creates a sandbox on the shared instance.
func (c *C) box(change ...func(*sdk.CreateRequest)) *box {
	return c.boxOn(c.shared(), c.request(change...))
}

// end notes whether the check has destroyed a sandbox, which its cleanup then need not.
func (c *C) end(id string, ended bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended == nil {
		c.ended = map[string]bool{}
	}
	c.ended[id] = ended
}

func (c *C) hasEnded(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended[id]
}

// destroyed returns a sandbox that was destroyed, one for all checks that only ask for it.
func (c *C) destroyed() *box {
	s, i := c.session, c.shared()
	s.mu.Lock()
	dead := s.dead
	s.mu.Unlock()
	if dead == nil || dead.on != i {
		dead = c.box()
		c.destroy(dead)
		s.mu.Lock()
		s.dead = dead
		s.mu.Unlock()
	}
	b := *dead
	b.c = c
	return &b
}

// used returns a sandbox as box does, with an empty workspace, in which commands of other checks may have run. It is
// for checks that look at commands and files and leave the sandbox itself as it is: making one is most of what a check
// costs.
func (c *C) used() *box { return c.usedFor("") }

// usedFor is used for sandboxes that change makes different, which share a kind. One whose workspace has a source is
// given back as the check leaves it.
func (c *C) usedFor(kind string, change ...func(*sdk.CreateRequest)) *box {
	if c.alone {
		return c.box(change...)
	}
	s, i := c.session, c.shared()
	s.mu.Lock()
	idle := slices.DeleteFunc(s.idle[kind], func(b *box) bool { return b.on != i })
	var b box
	if n := len(idle); n > 0 {
		b = *idle[n-1]
		idle = idle[:n-1]
	}
	s.idle[kind] = idle
	s.mu.Unlock()
	if b.Sandbox == nil {
		req := s.keeper.request(change...)
		sb, err := s.keeper.createWith(c.ctx, i, req)
		if err != nil {
			c.Fatalf("creating a sandbox: %v", err)
		}
		b = box{Sandbox: sb, on: i, req: req}
	}
	b.c = c
	c.later(func() { s.giveBack(kind, &b) })
	return &b
}

// giveBack empties the workspace of a used sandbox for the next check. One in which a check failed, or that cannot be
// emptied, is not used again.
func (s *session) giveBack(kind string, b *box) {
	if b.c.failed.Load() || b.on.over.Load() || gone(b.on) || b.req.Workspace.Source == "" && !b.empty() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle[kind] = append(s.idle[kind], b)
}

// empty removes what is in the workspace.
func (b *box) empty() bool {
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	var left bytes.Buffer
	cmd := b.command("find . -mindepth 1 -maxdepth 1 ! -name input ! -name output -exec chmod -R u+rwX {} + -exec rm -rf {} +; ls -A | grep -vxE 'input|output'; true")
	cmd.Stdout = &left
	exit, err := b.Exec(ctx, cmd)
	return err == nil && exit.Code == 0 && left.Len() == 0
}

// endUsed destroys the sandboxes that checks have shared.
func (s *session) endUsed() {
	s.mu.Lock()
	clear(s.idle)
	hangs := s.stopped != "" || len(s.hung) > 0
	s.mu.Unlock()
	s.clean(s.keeper, hangs)
	s.keeper.cleanups = nil
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

// kill ends the process of an instance, and waits until its parent knows: what is cleaned up after the check asks.
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

// eventually ends the check unless ok becomes true in time. It looks often at first, then less so, for a look may start
// programs.
func (c *C) eventually(within time.Duration, what string, ok func() (bool, string)) {
	deadline := time.Now().Add(within)
	for pause := 20 * time.Millisecond; ; pause = min(pause*3/2, 250*time.Millisecond) {
		good, seen := ok()
		if good {
			return
		}
		if time.Now().After(deadline) {
			c.Fatalf("%s: still not so after %s: %s", what, within, seen)
		}
		time.Sleep(pause)
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

func withSource(dir string, mode sdk.WorkspaceMode) func(*sdk.CreateRequest) {
	return func(r *sdk.CreateRequest) { r.Workspace = sdk.Workspace{Source: dir, Mode: mode} }
}

func withLimits(l sdk.Limits) func(*sdk.CreateRequest) {
	return func(r *sdk.CreateRequest) { r.Limits = l }
}

var semver = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\d+\.\d+\.\d+([-+][0-9A-Za-z.+-]+)?$`) })
