// Package backend finds, verifies, launches, talks to and stops backend plugins.
//
// A [Pool] holds one process per backend and host run, shared by all runs. Its
// Start launches without waiting, so that a run file is parsed and checked meanwhile;
// Get waits. What a [Backend] offers is package sdk/client; this package adds
// the life of the process: its own process group, a lifeline that ends with the
// host, a private directory for its socket and FIFOs, a bounded stop, and an
// error that says how it died.
//
// # Trust
//
// A plugin runs as the user: hutch trusts what it is, and checks that it is that.
// Its name is matched before it becomes part of a path, it must lie where nobody
// else may write, its bytes are hashed, and the very file that was hashed is
// executed. Nothing that it says is trusted: first line, log lines, address,
// answers and exit codes are bounded and checked.
package backend

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk"
)

// Options tune a [Pool].
type Options struct {
	// Dir is a private directory (0700) with a short path for sockets and FIFOs, such
	// as store.RuntimeDir.Path. Required. The caller removes it after Close.
	Dir string

	// CacheDir keeps the hashes and descriptions of binaries; "" keeps none.
	CacheDir string

	// LogDir gets one file per backend, NAME.log, with all that its processes write on stderr, from the first byte on; ""
	// keeps only the last lines in memory. It need not exist.
	LogDir string

	// Paths are directories or files to look at first, from a development override.
	Paths []string

	// Overrides are paths of binaries by the name of the backend, absolute: builds of somebody who develops one. They
	// are stronger than everything else.
	Overrides map[string]string

	// Locks selects among installed binaries what a project or the user has locked; nil selects nothing.
	Locks Locks

	// Trusted refuses a program that may not be executed, as one without the signature that the user requires: it is asked
	// before each launch of a backend that was looked up by its name, with the SHA-256 of what would be executed. The
	// error becomes a *StartError. Nil refuses nothing.
	Trusted func(name, path, sha256 string, origin Origin) error

	// Environ is the environment of the host, as os.Environ returns it; nil means that.
	Environ []string

	// Executable is the path of the host, beside which ../libexec/hutch lies; ""
	// means os.Executable.
	Executable string

	HostVersion string // sent to backends

	// Temp is how the names of the backends' temporary directories begin, such as store.TempName returns; "" leaves it to
	// them.
	Temp string

	// Log gets every line that a backend logs, one at a time for each of them; nil
	// drops them. It must be quick: the backend waits for it when its pipe is full.
	Log func(Line)
	// LogLevel is the least level that backends are asked to log; 0 means info.
	LogLevel hclog.Level

	StartTimeout time.Duration // from exec to the first line; 0 means 10 s
	StopTimeout  time.Duration // for Drain; 0 means 30 s. A process that does not answer is killed after it
	Slack        time.Duration // see client.Options.Slack

	// Keeper keeps backends for the next pool, whose Dir is the Keeper's; nil stops each with its pool.
	Keeper *Keeper

	// CallTimeout is how long a backend may take for one call, but for the running of a command; 0 means
	// DefaultCallTimeout.
	CallTimeout time.Duration
	// Waiting is called, now and then, when a backend has not answered a call: one line, safe to show. It may be called
	// concurrently, and be nil.
	Waiting func(line string)
}

// DefaultCallTimeout is how long a backend may take for one call when nobody says: a virtual machine may have to be
// made.
const DefaultCallTimeout = 10 * time.Minute

// quickCall is the most that a call may take that asks for something and does nothing.
const quickCall = 30 * time.Second

// Pool launches backends, each once. Its methods may be called concurrently.
type Pool struct {
	opt     Options
	environ map[string]string
	finder  *finder

	ctx    context.Context // of all launches
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	entries map[string]*entry // by name; of Open, by number and path
	opened  int
	closed  bool
}

// entry is one launch and what came of it.
type entry struct {
	known   chan struct{} // closed when facts or err is there
	ready   chan struct{} // closed when backend or err is there
	facts   *sdk.Facts
	backend *Backend
	err     error
}

// NewPool returns a pool; it starts nothing.
func NewPool(opt Options) *Pool {
	if opt.Environ == nil {
		opt.Environ = os.Environ()
	}
	if opt.StartTimeout == 0 {
		opt.StartTimeout = 10 * time.Second
	}
	if opt.StopTimeout == 0 {
		opt.StopTimeout = 30 * time.Second
	}
	if opt.CallTimeout == 0 {
		opt.CallTimeout = DefaultCallTimeout
	}
	p := &Pool{opt: opt, environ: environ(opt.Environ), entries: map[string]*entry{}}
	p.finder = newFinder(opt, p.environ)
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	return p
}

// Start begins to launch a backend and returns at once. What goes wrong is reported by Get.
func (p *Pool) Start(name string) {
	p.entry(name, func(e *entry) error {
		f, err := p.finder.find(name)
		if err != nil {
			return err
		}
		return p.bring(e, name, f.path, &f.origin)
	})
}

// Facts returns what a backend says about itself, launching it now if need be.
// When its binary is known from before, this does not wait for the process.
func (p *Pool) Facts(ctx context.Context, name string) (*sdk.Facts, error) {
	p.Start(name)
	e := p.get(name)
	if e == nil {
		return nil, ErrStopped
	}
	select {
	case <-e.known:
		if e.facts == nil {
			return nil, e.err
		}
		return e.facts, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Get returns a running backend, launched now if need be. An error is a
// *NotFoundError, a *StartError, ErrStopped or the cause of ctx. A backend that died is
// not launched again.
func (p *Pool) Get(ctx context.Context, name string) (*Backend, error) {
	p.Start(name)
	return p.wait(ctx, name)
}

// Open launches the binary at path, as its own process each time: for tools
// that test one, and for cleaning up after one that died. Its name is what it says it
// is. The caller stops it; Close does too.
func (p *Pool) Open(ctx context.Context, path string) (*Backend, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	name := strings.TrimPrefix(filepath.Base(abs), Prefix)
	p.mu.Lock()
	p.opened++
	key := strconv.Itoa(p.opened) + " " + abs // no name is like this
	p.mu.Unlock()
	p.entry(key, func(e *entry) error {
		real, err := filepath.EvalSymlinks(abs)
		if err != nil {
			return &StartError{Name: name, Path: abs, Found: reason(err), Fix: "give the path of a backend's binary"}
		}
		if why := p.finder.refuse(real); why != "" && !strings.Contains(why, "write") {
			return &StartError{Name: name, Path: abs, Found: "it is " + why, Fix: "give the path of a backend's binary"}
		}
		return p.bring(e, name, real, nil)
	})
	return p.wait(ctx, key)
}

// Names lists the backends that can be found, sorted, each once.
func (p *Pool) Names() []string { return p.finder.names() }

// Find returns the path of the binary that a name stands for and where that comes from, or a *NotFoundError or
// *LockError. It starts nothing, and does not look into the binary.
func (p *Pool) Find(name string) (string, Origin, error) {
	f, err := p.finder.find(name)
	if err != nil {
		return "", Origin{}, err
	}
	return f.path, f.origin, nil
}

// GetMaker returns the backend that made something: the very binary while that is what it was, else whichever has the
// name now. path and sha256 are what is recorded of it and may be empty.
func (p *Pool) GetMaker(ctx context.Context, name, path, sha256 string) (*Backend, error) {
	return p.wait(ctx, p.StartMaker(name, path, sha256))
}

// StartMaker begins to launch what GetMaker would return, and returns at once. What it returns is of no use to others.
func (p *Pool) StartMaker(name, path, sha256 string) (key string) {
	f, err := p.finder.find(name)
	if path == "" || sha256 == "" || err == nil && f.path == path || p.finder.refuse(path) != "" {
		p.Start(name)
		return name
	}
	bin, err := openBinary(name, path, p.opt.CacheDir)
	if err == nil {
		bin.file.Close()
	}
	origin := Origin{From: FromRecord, Selection: &Selection{Path: path, SHA256: sha256}}
	if err != nil || bin.sha256 != sha256 || p.trusted(name, path, sha256, origin) != nil {
		p.Start(name)
		return name
	}
	key = name + " " + path // no name is like this
	p.entry(key, func(e *entry) error { return p.bring(e, name, path, &origin) })
	return key
}

// trusted asks Options.Trusted.
func (p *Pool) trusted(name, path, sha256 string, origin Origin) error {
	if p.opt.Trusted == nil {
		return nil
	}
	err := p.opt.Trusted(name, path, sha256, origin)
	if se := (*StartError)(nil); err == nil || errors.As(err, &se) {
		return err
	}
	return &StartError{Name: name, Path: path, Found: err.Error()}
}

// entry makes the entry for key, unless there is one, and fills it by f.
func (p *Pool) entry(key string, f func(*entry) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.entries[key] != nil || p.closed {
		return
	}
	e := &entry{known: make(chan struct{}), ready: make(chan struct{})}
	p.entries[key] = e
	go func() {
		e.err = f(e)
		if e.facts == nil {
			close(e.known)
		}
		close(e.ready)
	}()
}

func (p *Pool) get(key string) *entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.entries[key]
}

func (p *Pool) wait(ctx context.Context, key string) (*Backend, error) {
	e := p.get(key)
	if e == nil {
		return nil, ErrStopped
	}
	select {
	case <-e.ready:
		return e.backend, e.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// minFiles is the least limit of open files with which a backend starts. Host and backends give descriptors numbers up
// to 63, so that the kernel need not make the table of a running process larger.
const minFiles = 64

// bring launches the binary at path. What is known about it from before spares
// the first call, and is reported at once.
//
// A backend that was looked up must have the name that it was looked up by, and be what a lock file says; origin is nil
// for one that was not.
func (p *Pool) bring(e *entry, name, path string, origin *Origin) error {
	var locked *Selection
	if origin != nil {
		locked = origin.Selection
	}
	checkFacts := func(f *sdk.Facts) error {
		if origin == nil {
			name = f.Name
		}
		if locked != nil && locked.Version != "" && f.Version != locked.Version {
			return &StartError{Name: name, Path: path,
				Found: fmt.Sprintf("it says its version is %s, and it was released as %s", quoteLine(f.Version), locked.Version),
				Fix:   "tell its publisher"}
		}
		return checkFacts(f, name, path)
	}
	var open unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &open); err == nil && open.Cur < minFiles {
		return &StartError{Name: name, Path: path,
			Found: fmt.Sprintf("hutch may open %d files here, and starting a backend takes %d", open.Cur, minFiles),
			Fix:   "raise the hard limit of open files, for instance to 1024 (ulimit -n 1024)"}
	}
	bin, err := openBinary(name, path, p.opt.CacheDir)
	if err != nil {
		return &StartError{Name: name, Path: path, Found: reason(err), Fix: "see that it can be read"}
	}
	defer bin.file.Close()
	if locked != nil && bin.sha256 != locked.SHA256 {
		return &LockError{Name: name, Lock: locked.Lock, Fix: locked.Fix,
			Found: fmt.Sprintf("it names version %s with the SHA-256 %s, and %s has %s", locked.Version, locked.SHA256, path,
				bin.sha256)}
	}
	if locked != nil && locked.Beside != "" {
		if err := checkBeside(path, name, locked.Beside, p.opt.CacheDir); err != nil {
			return &LockError{Name: name, Lock: locked.Lock, Fix: locked.Fix,
				Found: fmt.Sprintf("it names version %s, and %s", locked.Version, err)}
		}
	}
	if origin != nil {
		if err := p.trusted(name, path, bin.sha256, *origin); err != nil {
			return err
		}
	}
	if bin.facts != nil {
		if err := checkFacts(bin.facts); err != nil {
			return err
		}
		e.facts = bin.facts
		close(e.known)
		b, err := p.launch(p.ctx, name, bin, bin.facts.Environment)
		if err != nil {
			return err
		}
		b.Facts, b.Origin = *bin.facts, from(origin)
		e.backend = b
		return nil
	}
	b, err := p.launch(p.ctx, name, bin, nil)
	if err != nil {
		return err
	}
	facts, err := b.Describe(p.ctx)
	if err == nil {
		err = checkFacts(facts)
	}
	if err == nil && missing(p.environ, facts.Environment) {
		// It wants to see more than it was started with. From now on this is known.
		_ = b.Stop(p.ctx)
		b, err = p.launch(p.ctx, name, bin, facts.Environment)
	}
	if err != nil {
		if b != nil {
			b.proc.stop()
			b.proc.killStrays()
			_ = b.Stop(p.ctx)
		}
		return err
	}
	bin.remember(facts)
	b.Facts, b.Name, b.Origin = *facts, name, from(origin)
	e.facts = facts
	close(e.known)
	e.backend = b
	return nil
}

func from(o *Origin) Origin {
	if o == nil {
		return Origin{From: FromOptions}
	}
	return *o
}

// checkFacts refuses a backend that says it is another one.
func checkFacts(f *sdk.Facts, name, path string) error {
	if f.Name != name {
		return &StartError{Name: name, Path: path, Found: "it says its name is " + quoteLine(f.Name),
			Fix: "rename the file to " + Prefix + "NAME"}
	}
	if f.Isolation.Rank() < 0 {
		return &StartError{Name: name, Path: path, Found: "it does not say how it isolates",
			Fix: "it may be newer than this hutch: upgrade hutch"}
	}
	return nil
}

// Close drains and stops all processes at the same time, and returns when all are
// gone. When ctx ends they are killed.
func (p *Pool) Close(ctx context.Context) error {
	entries := p.shut(ErrStopped)
	errs := make([]error, len(entries))
	var wg sync.WaitGroup
	for i, e := range entries {
		wg.Go(func() {
			<-e.ready // launches are cancelled
			if e.backend != nil {
				errs[i] = e.backend.Stop(ctx)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// shut lets nothing be launched any more and returns what was.
func (p *Pool) shut(cause error) []*entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.cancel(cause)
	entries := make([]*entry, 0, len(p.entries))
	for _, e := range p.entries {
		entries = append(entries, e)
	}
	return entries
}

// Platform is the one that this host runs on, as releases call it: linux/amd64.
const Platform = runtime.GOOS + "/" + runtime.GOARCH

// InstalledPath is where the binary of an installed release lies below dir. The beginning of its SHA-256, in hex, is
// part of it, so that two sources with one version number do not share a place.
func InstalledPath(dir, name, version, platform, sha256 string) string {
	return filepath.Join(dir, name, version, strings.ReplaceAll(platform, "/", "_"), sha256[:16], Prefix+name)
}
