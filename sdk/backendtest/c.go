package backendtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
func (c *C) request(change ...ask) *sdk.CreateRequest {
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
	c.own(os.MkdirAll(req.StateDir, 0o700))
	c.recordBox(req)
	return req
}

// ask changes what a sandbox is asked for.
type ask = func(*sdk.CreateRequest)

func keep(r *sdk.CreateRequest) { r.Keep = true }

func withSource(dir string, mode sdk.WorkspaceMode) ask {
	return func(r *sdk.CreateRequest) { r.Workspace = sdk.Workspace{Source: dir, Mode: mode} }
}

func withInput(dir string) ask          { return func(r *sdk.CreateRequest) { r.Input = dir } }
func withLimits(l sdk.Limits) ask       { return func(r *sdk.CreateRequest) { r.Limits = l } }
func withNetwork(m sdk.NetworkMode) ask { return func(r *sdk.CreateRequest) { r.Network = m } }
func withMount(source string, ro bool) ask {
	return func(r *sdk.CreateRequest) {
		r.Mounts = []sdk.Mount{{Source: source, Target: "/hutch-mounted", ReadOnly: ro}}
	}
}

func withRules(m sdk.NetworkMode, allow, deny []string) ask {
	return func(r *sdk.CreateRequest) { r.Network, r.Rules = m, sdk.NetworkRules{Allow: allow, Deny: deny} }
}

// boxOn creates a sandbox on an instance, and destroys it at the end of the check.
func (c *C) boxOn(i *instance, req *sdk.CreateRequest) *box {
	sb, err := c.create(c.ctx, i, req)
	c.ok("creating a sandbox", err)
	return &box{Sandbox: sb, C: c, on: i, req: req}
}

// box creates a sandbox on the shared instance.
func (c *C) box(change ...ask) *box { return c.boxOn(c.shared(), c.request(change...)) }

// ownBox creates a sandbox on an instance of its own.
func (c *C) ownBox(change ...ask) *box { return c.boxOn(c.fresh(StartOptions{}), c.request(change...)) }

// attached is a sandbox as another instance finds it by its handle.
func (b *box) attached(on *instance) *box {
	sb, err := on.Attach(b.ctx, b.Handle())
	b.ok("attach", err)
	return &box{Sandbox: sb, C: b.C, on: on, req: b.req}
}

// elsewhere is a sandbox as another process finds it.
func (b *box) elsewhere() *box { return b.attached(b.fresh(StartOptions{})) }

// create is boxOn for creations that may fail.
func (c *C) create(ctx context.Context, i *instance, req *sdk.CreateRequest) (*client.Sandbox, error) {
	h := sdk.Handle{ID: req.ID}
	c.noteEnd(req.ID, false)
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

// refused ends the check unless a sandbox is refused for one of the reasons.
func (c *C) refused(what string, req *sdk.CreateRequest, reasons ...sdk.Reason) *sdk.Error {
	_, err := c.create(c.ctx, c.shared(), req)
	return c.wantReason(err, what, reasons...)
}

// noteEnd notes whether the check has destroyed a sandbox, which its cleanup then need not.
func (c *C) noteEnd(id string, ended bool) {
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
		dead.destroy()
		s.mu.Lock()
		s.dead = dead
		s.mu.Unlock()
	}
	b := *dead
	b.C = c
	return &b
}

// used returns a sandbox as box does, with an empty workspace, in which commands of other checks may have run. It is
// for checks that look at commands and files and leave the sandbox itself as it is: making one is most of what a check
// costs.
func (c *C) used() *box { return c.usedFor("") }

// usedFor is used for sandboxes that change makes different, which share a kind. One whose workspace has a source is
// given back as the check leaves it.
func (c *C) usedFor(kind string, change ...ask) *box {
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
		sb, err := s.keeper.create(c.ctx, i, req)
		c.ok("creating a sandbox", err)
		b = box{Sandbox: sb, on: i, req: req}
	}
	b.C = c
	c.later(func() { s.giveBack(kind, &b) })
	return &b
}

// giveBack empties the workspace of a used sandbox for the next check. One in which a check failed, or that cannot be
// emptied, is not used again.
func (s *session) giveBack(kind string, b *box) {
	if b.failed.Load() || b.on.over.Load() || gone(b.on) || b.req.Workspace.Source == "" && !b.empty() {
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
	var left strings.Builder
	cmd := b.command("find . -mindepth 1 -maxdepth 1 ! -name input ! -name output" +
		" -exec chmod -R u+rwX {} + -exec rm -rf {} +; " + others + "; true")
	cmd.Stdout = &left
	exit, err := b.Exec(ctx, &cmd.Command)
	return err == nil && exit.Code == 0 && left.Len() == 0
}

// others prints what is in the workspace besides the directories that a backend may show there.
const others = "ls -A | grep -vxE 'input|output'"

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
	c.ok("starting another instance of the backend", err)
	c.later(func() { c.stop(i) })
	return i
}

// halt stops an instance in the ordinary way.
func (c *C) halt(i *instance) { c.ok("stopping an instance", c.stop(i)) }

// kill ends the process of an instance, and waits until its parent knows: what is cleaned up after the check asks.
func (c *C) kill(i *instance) {
	syscall.Kill(i.PID(), syscall.SIGKILL)
	c.isGone(i)
}

// isGone waits for the end of an instance.
func (c *C) isGone(i *instance) {
	c.eventually(soon, "the plugin is gone", func() (bool, string) { return gone(i), "it lives" })
}

func gone(i *instance) bool {
	select {
	case <-i.Done():
		return true
	default:
		return false
	}
}

// ok ends the check when something that has to work gave an error.
func (c *C) ok(what string, err error) {
	if err != nil {
		c.Fatalf("%s: %v", what, err)
	}
}

// own ends the check when the suite itself has an error with its own files.
func (c *C) own(err error) { c.ok("the suite's own files", err) }

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

// wantSignal ends the check unless the command died of the signal.
func (c *C) wantSignal(o *out, name string, code int) {
	if o.Cause != sdk.CauseSignaled || o.Signal != name || o.Code != code {
		c.Fatalf("got %s; want cause \"signaled\", code %d, signal %s", o.how(), code, name)
	}
}

// eq ends the check unless both are the same.
func (c *C) eq(what string, got, want string) {
	if got != want {
		c.Fatalf("%s is %s; want %s", what, quote(got), quote(want))
	}
}

// quickest ends the check unless the quickest of 20 calls takes no longer than most.
func (c *C) quickest(most time.Duration, call func()) {
	best := time.Hour
	for range 20 {
		began := time.Now()
		call()
		best = min(best, time.Since(began))
	}
	if best > most {
		c.Fatalf("the quickest of 20 calls took %s, more than %s", best, most)
	}
}

// repeats ends the check unless six calls say the same.
func (c *C) repeats(call func() string) {
	first := call()
	for range 5 {
		if again := call(); again != first {
			c.Fatalf("first %s, then %s", first, again)
		}
	}
}

// atOnce makes n calls at the same time, which all have to work.
func (c *C) atOnce(n int, call func(i int) error) {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = call(i) })
	}
	wg.Wait()
	for i, err := range errs {
		c.ok(fmt.Sprintf("call %d of %d", i+1, n), err)
	}
}

// hostDir makes a directory on the host, below the check's own.
func (c *C) hostDir(name string) string {
	d := filepath.Join(c.dir, name)
	c.own(os.MkdirAll(d, 0o755))
	return d
}

// write writes a file on the host.
func (c *C) write(path, content string, mode os.FileMode) {
	c.own(os.MkdirAll(filepath.Dir(path), 0o755))
	c.own(os.WriteFile(path, []byte(content), mode))
	c.own(os.Chmod(path, mode))
}

// read reads a file on the host.
func (c *C) read(path string) string {
	b, err := os.ReadFile(path)
	c.ok("reading on the host", err)
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

// absent waits until nothing is found; look says what is.
func (c *C) absent(within time.Duration, what string, look func() string) {
	c.eventually(within, what, func() (bool, string) { left := look(); return left == "", left })
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
