// Package session holds what one call of hutch needs and nothing before it is needed: the store, the user's
// configuration, and the pool of backends.
package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/host/config"
	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/install"
	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/workspace/review"
	"github.com/hutch-run/hutch/sdk"
)

// Options say how a session is opened. The zero value is right for the hutch command.
type Options struct {
	Store   store.Options
	Version string // of the host, sent to backends
	// Executable is the path of hutch, beside which backends lie; "" means the program that runs.
	Executable string

	// Keeper keeps backends for the next session of this process; nil stops each with its session.
	Keeper *backend.Keeper

	// Warn gets what backends log as a warning or an error, and that one of them is waited for, one line at a time and
	// maybe concurrently; it may be nil.
	Warn func(line string)
}

// Session is one call of hutch. Its methods may be called concurrently, but for Close.
type Session struct {
	opt   Options
	store *store.Store

	locks  *locks
	config func() (*config.Config, error)
	pool   func() (*backend.Pool, error)

	warning sync.Mutex
	warned  map[string]int // lines shown, by backend

	mu      sync.Mutex
	started *backend.Pool
	dir     *store.RuntimeDir // nil with a Keeper
}

// Open opens the store. Nothing else is read or started before it is asked for.
func Open(o Options) (*Session, error) {
	o.Store.Version = o.Version
	st, err := store.Open(o.Store)
	if err != nil {
		return nil, err
	}
	s := &Session{opt: o, store: st, locks: newLocks(st.Paths()), warned: map[string]int{}}
	s.config = sync.OnceValues(func() (*config.Config, error) { return config.Load(st.Paths().ConfigFile()) })
	s.pool = sync.OnceValues(s.openPool)
	return s, nil
}

// Store is the open store.
func (s *Session) Store() *store.Store { return s.store }

// Config is the user's configuration, read at the first call.
func (s *Session) Config() (*config.Config, error) { return s.config() }

// ConfigFor is Config for a call that asks for at least this isolation; "" asks for nothing more.
func (s *Session) ConfigFor(isolation string) (*config.Config, error) {
	conf, err := s.Config()
	if err != nil {
		return nil, err
	}
	own := *conf
	return &own, own.Require(isolation)
}

// Runner makes a runner of o with the store, the backends and the environment of the session, which asks for at least
// this isolation, as ConfigFor does.
func (s *Session) Runner(isolation string, o run.Options) (*run.Runner, error) {
	o, err := s.complete(isolation, o)
	if err != nil {
		return nil, err
	}
	return run.New(o), nil
}

func (s *Session) complete(isolation string, o run.Options) (run.Options, error) {
	conf, err := s.ConfigFor(isolation)
	if err != nil {
		return o, err
	}
	o.Store, o.MinIsolation, o.Environ = s.store, conf.MinIsolation, os.Environ()
	if o.Backends, err = s.Pool(); err != nil {
		return o, err
	}
	o.DefaultsFrom = "the default backends"
	if conf.Backend != "" {
		o.DefaultsFrom = s.store.Paths().ConfigFile()
	}
	o.Defaults, err = s.DefaultBackends(isolation)
	return o, err
}

// Pool is the pool of backends, made at the first call. It starts nothing by itself.
func (s *Session) Pool() (*backend.Pool, error) { return s.pool() }

// withoutImage are the backends that can run a command without further configuration, in the order in which they are
// tried. Those that isolate less than namespaces follow only for a user who asks for so little: see decisions/030.
var (
	withoutImage = []string{"bwrap", "podman", "lima"}
	weaker       = []string{"landlock"}
)

// DefaultBackends are the backends of a command when nobody names one, in the order in which they are tried: that of
// the configuration, or those of the usual ones that are installed, which may be none. least is the isolation that the
// user asks for besides the configuration; "" asks for nothing.
func (s *Session) DefaultBackends(least string) ([]string, error) {
	conf, err := s.ConfigFor(least)
	if err != nil {
		return nil, err
	}
	if conf.Backend != "" {
		return []string{conf.Backend}, nil
	}
	pool, err := s.Pool()
	if err != nil {
		return nil, err
	}
	order := slices.Clone(withoutImage)
	if conf.AcceptsProcesses() {
		order = append(order, weaker...)
	}
	installed := pool.Names()
	return slices.DeleteFunc(order, func(n string) bool { return !slices.Contains(installed, n) }), nil
}

func (s *Session) openPool() (*backend.Pool, error) {
	conf, err := s.Config()
	if err != nil {
		return nil, err
	}
	at := ""
	var dir *store.RuntimeDir
	if s.opt.Keeper != nil {
		at = s.opt.Keeper.Dir()
	} else if dir, err = store.NewRuntimeDir(); err != nil {
		return nil, err
	} else {
		at = dir.Path()
	}
	p := backend.NewPool(backend.Options{
		Dir: at, Keeper: s.opt.Keeper, CacheDir: s.store.Paths().Backends(), HostVersion: s.opt.Version,
		Temp: store.TempName("backend"), Executable: s.opt.Executable, Log: s.warn,
		LogDir: s.store.Paths().BackendLogs(), Overrides: conf.BackendPaths, Locks: s.locks,
		CallTimeout: conf.BackendTimeout, Waiting: s.opt.Warn, Trusted: s.trusted(conf),
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started, s.dir = p, dir
	return p, nil
}

// Trust is whose releases of backends the user wants, to install and to run.
func Trust(c *config.Config) install.Trust {
	return install.Trust{Required: c.SignaturesRequired, Keys: c.TrustedKeys}
}

// trusted decides which programs may be executed as backends. What comes with hutch, and what the configuration itself
// names, needs no signature; what is installed needs the one that installing it would need now.
func (s *Session) trusted(c *config.Config) func(name, path, sha256 string, o backend.Origin) error {
	trust, installed := Trust(c), s.store.Paths().Installed()+string(filepath.Separator)
	return func(name, path, sha256 string, o backend.Origin) error {
		p := install.Installed{Name: name, Program: path, SHA256: sha256}
		refusal := &backend.StartError{Name: name, Path: path,
			Fix: fmt.Sprintf("hutch backend install or hutch init brings a signed release; %s says whose signatures are wanted",
				s.store.Paths().ConfigFile())}
		switch o.From {
		case backend.FromConfig, backend.FromBundle, backend.FromOptions:
			return nil
		case backend.FromEnvironment:
			if !trust.Required {
				return nil
			}
			refusal.Found = backend.EnvPath +
				` names it, it has no signature, and your configuration says signatures = "required"`
			refusal.Fix = fmt.Sprintf("name it in backend_paths of %s", s.store.Paths().ConfigFile())
			return refusal
		case backend.FromLock:
			p.Source, p.Dir = o.Selection.Source, filepath.Dir(o.Selection.Lock)
		default: // a record, whose program may be of an older hutch
			if real, err := filepath.EvalSymlinks(s.store.Paths().Installed()); err == nil {
				installed = real + string(filepath.Separator)
			}
			if !strings.HasPrefix(path, installed) {
				if trust.Required {
					refusal.Found = "it is not installed"
					return refusal
				}
				return nil
			}
		}
		if err := trust.CheckInstalled(p); err != nil {
			refusal.Found = "it is not trusted: " + err.Error()
			return refusal
		}
		return nil
	}
}

// What a user is shown of one backend; all is in its log.
const (
	mostWarnings = 20   // lines
	mostWarning  = 1000 // bytes of a line
)

// warn passes on what a user should see of a backend's log. A line with a stack belongs to an error that is reported
// anyway.
func (s *Session) warn(l backend.Line) {
	if s.opt.Warn == nil || l.Level < hclog.Warn || slices.Contains(l.Pairs, "stack") {
		return
	}
	s.warning.Lock() // not mu, which Close holds while backends are still talking
	s.warned[l.Backend]++
	n := s.warned[l.Backend]
	s.warning.Unlock()
	switch {
	case n <= mostWarnings:
		text := l.String()
		if len(text) > mostWarning {
			text = strings.ToValidUTF8(text[:mostWarning], "") + "…"
		}
		s.opt.Warn(fmt.Sprintf("backend %q: %s", l.Backend, text))
	case n == mostWarnings+1:
		s.opt.Warn(fmt.Sprintf("backend %q goes on in its log: %s", l.Backend,
			filepath.Join(s.store.Paths().BackendLogs(), l.Backend+".log")))
	}
}

// UseLocks has the lock files beside run files say which backends are used. It must be called before a backend is
// started. A file that is no regular one, such as a pipe, has none.
func (s *Session) UseLocks(files ...string) { s.locks.use(files) }

// Start begins to launch a backend without waiting, so that it comes up while something else is done. A name that is
// none, and everything else that goes wrong, goes to the caller that asks for the backend.
func (s *Session) Start(name string) {
	if p, err := s.Pool(); err == nil {
		p.Start(name)
	}
}

// StartMaker begins to launch the backend that made something; see [backend.Pool.GetMaker].
func (s *Session) StartMaker(name, path, sha256 string) {
	if p, err := s.Pool(); err == nil {
		p.StartMaker(name, path, sha256)
	}
}

// named finds the first backend block of a run file without reading it as HCL.
var named = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^\s*backend\s+"([a-z][a-z0-9-]*)"`) })

// StartFor guesses which backends run files will need, the first one each of them names, and begins to launch those
// while the files are read and checked. A wrong guess costs a moment of another processor and has no other effect.
func (s *Session) StartFor(files []string) {
	s.UseLocks(files...)
	for _, name := range files {
		if st, err := os.Stat(name); err != nil || !st.Mode().IsRegular() {
			continue // what is read of a pipe is gone
		}
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		head := make([]byte, 16<<10)
		n, _ := io.ReadFull(f, head)
		_ = f.Close()
		if m := named().FindSubmatch(head[:n]); m != nil {
			s.Start(string(m[1]))
		}
	}
}

// Find returns a running backend by its name, or by the path of its binary when ref holds a slash.
func (s *Session) Find(ctx context.Context, ref string) (*backend.Backend, error) {
	p, err := s.Pool()
	if err != nil {
		return nil, err
	}
	if strings.ContainsRune(ref, filepath.Separator) {
		return p.Open(ctx, ref)
	}
	return p.Get(ctx, ref)
}

// pluginPatience is more than the SDK gives a backend for cleaning up after its host is gone.
const pluginPatience = 40 * time.Second

// Destroy removes what an intent says was made, through the backend that made it. It is for store.GC.
func (s *Session) Destroy(ctx context.Context, i store.Intent) error {
	if s.store.Original(i.Home, i.ID) != "" {
		return nil // it is the other store's; what lies here are copies of files, which the caller removes
	}
	if !i.Host.Alive() { // its backend destroys by itself what it was making; two at once would undo each other's work
		i.Plugin.End(ctx, pluginPatience)
	}
	p, err := s.Pool()
	if err != nil {
		return err
	}
	b, err := p.GetMaker(ctx, i.Backend, i.Binary, i.BinarySHA256)
	var missing *backend.NotFoundError
	if errors.As(err, &missing) && i.Binary != "" {
		// It is not where backends are looked for any more; the very binary that made the sandbox will do, and no other.
		if b, err = p.Open(ctx, i.Binary); err == nil && i.BinarySHA256 != "" && b.SHA256 != i.BinarySHA256 {
			return fmt.Errorf("backend %q is not installed, and %s is not the binary that made the sandbox any more", i.Backend,
				i.Binary)
		}
	}
	if err != nil {
		return err
	}
	return b.Client.Destroy(ctx, sdk.Handle{ID: i.ID, Data: i.Handle, StateDir: s.store.Paths().SandboxState(i.ID)})
}

// Lost asks every backend that can tell what it has that was made for this store. It is for store.GC. A backend that
// cannot work on this machine has nothing here.
func (s *Session) Lost(ctx context.Context) ([]store.Intent, error) {
	p, err := s.Pool()
	if err != nil {
		return nil, err
	}
	var found []store.Intent
	var errs []error
	for _, name := range p.Names() {
		facts, err := p.Facts(ctx, name)
		if err != nil || !facts.Has(sdk.CapList) {
			continue
		}
		b, err := p.Get(ctx, name)
		if err != nil {
			continue
		}
		handles, err := b.List(ctx, s.store.Owner())
		if err != nil {
			if r := sdk.ReasonOf(err); r != sdk.ReasonMissing && r != sdk.ReasonUnavailable {
				errs = append(errs, err)
			}
			continue
		}
		for _, h := range handles {
			found = append(found, store.Intent{ID: h.ID, Backend: name, Binary: b.Path, BinarySHA256: b.SHA256,
				Owner: s.store.Owner(), Handle: h.Data})
		}
	}
	return found, errors.Join(errs...)
}

// Retire begins to stop the backends, for a caller that needs none any more and has something else to do. Close waits
// for them and says what went wrong.
func (s *Session) Retire() {
	s.mu.Lock()
	p := s.started
	s.mu.Unlock()
	if p != nil {
		go func() { _ = p.Close(context.Background()) }() // bounded by the pool itself
	}
}

// Close stops every backend and removes what the session made for itself. When ctx ends, backends are killed.
func (s *Session) Close(ctx context.Context) error {
	p, dir := s.running()
	var errs []error
	if p != nil { // not under the lock: Leave must not wait for this
		errs = append(errs, p.Close(ctx))
	}
	if dir != nil {
		errs = append(errs, dir.Close())
	}
	s.mu.Lock()
	s.started = nil
	s.mu.Unlock()
	return errors.Join(append(errs, s.store.Close())...)
}

// Leave is for a process that ends at once afterwards, which is how backends learn that they have to finish by
// themselves. It removes what only this process can. It may be called at any time, also while Close waits.
func (s *Session) Leave() {
	if _, dir := s.running(); dir != nil {
		_ = dir.Close()
	}
}

func (s *Session) running() (*backend.Pool, *store.RuntimeDir) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.started, s.dir
}

// Sandboxes returns the manager of the store's persistent sandboxes. progress is called with what takes time, maybe
// concurrently; nil for nobody.
func (s *Session) Sandboxes(progress func(run.Progress)) (*sandbox.Manager, error) {
	o, err := s.complete("", run.Options{Progress: progress, TakeBase: review.WriteBase})
	if err != nil {
		return nil, err
	}
	return sandbox.New(sandbox.Options{Run: o, Destroy: s.Destroy}), nil
}

// Protocol is the major version of the contract that this host speaks.
const Protocol = sdk.ProtocolVersion

// CheckBlocks checks the backend blocks of runs against what the backends themselves declare. A backend that is not
// installed is a warning, printed once.
func (s *Session) CheckBlocks(ctx context.Context, defs []*runfile.Definition) (diag.Diagnostics, error) {
	p, err := s.Pool()
	if err != nil {
		return nil, err
	}
	var out diag.Diagnostics
	missing := map[string]bool{}
	for _, d := range defs {
		for i, block := range d.Backends {
			facts, err := p.Facts(ctx, block.Name)
			switch {
			case context.Cause(ctx) != nil:
				return out, context.Cause(ctx)
			case err != nil:
				if !missing[block.Name] {
					missing[block.Name] = true
					w := d.Diagnose(fmt.Sprintf("backend[%d]", i), fmt.Sprintf("the block of backend %q is not checked: %v",
						block.Name, err), "", "")
					w.Severity = diag.Warning
					out = append(out, w)
				}
			default:
				_, ds := block.Decode(&facts.Schema)
				out = append(out, ds...)
			}
		}
	}
	return out, nil
}
