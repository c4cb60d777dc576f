package run

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/client"
)

// plain is a backend that runs plain processes, with faults on demand. It is served in the test process, over the wire.
type plain struct {
	desc  sdk.Description
	holds []sdk.Hold // of Plan and Ready
	diags []sdk.Diagnostic

	createErr, execErr, getErr, destroyErr error
	stuck                                  <-chan struct{} // Destroy waits for it, whatever its context says
	ready                                  func(*sdk.Ready)
	exit                                   *sdk.Exit // what Exec returns, whatever the command did
	exec                                   func(*sdk.Command) (*sdk.Exit, error)
	lost                                   string // what Exec says about output that did not come
	changes                                []sdk.Change
	tar                                    []byte // what Get sends instead of the output directory

	mu       sync.Mutex
	specs    []sdk.CreateRequest
	commands []*sdk.Command
	alive    map[string]bool
	planned  atomic.Int32
	running  atomic.Int32
	most     atomic.Int32
	destroys atomic.Int32
}

func (p *plain) Describe() sdk.Description {
	d := p.desc
	d.Summary, d.Config, d.Sandbox = "plain processes", plainConfig{}, (*plainBox)(nil)
	if d.Name == "" {
		d.Name = "plain"
	}
	if d.Version == "" {
		d.Version = "0.3.0"
	}
	if d.Isolation == "" {
		d.Isolation = sdk.IsolationNamespace
	}
	if d.Limits == nil {
		d.Limits = []sdk.Limit{sdk.LimitTimeout, sdk.LimitMemory}
	}
	d.Workspaces = []sdk.WorkspaceMode{sdk.WorkspacePrivate, sdk.WorkspaceShared, sdk.WorkspaceReadOnly}
	d.Formats = []sdk.Format{sdk.FormatTar}
	return d
}

type plainConfig struct {
	Image string `hutch:"image" doc:"Of what."`
	Token string `hutch:"token,sensitive" doc:"For whom."`
	Old   string `hutch:"old" deprecated:"use image" doc:"Of what, once."`
}

func (p *plain) Check(context.Context) ([]sdk.Finding, error) { return nil, nil }

func (p *plain) Plan(_ context.Context, spec *sdk.Spec) (*sdk.Plan, error) {
	p.planned.Add(1)
	return &sdk.Plan{Holds: p.holdsFor(&spec.Limits), Diagnostics: p.diags}, nil
}

func (p *plain) holdsFor(l *sdk.Limits) []sdk.Hold {
	if p.holds != nil {
		return p.holds
	}
	h := []sdk.Hold{}
	if l.Timeout > 0 {
		h = append(h, sdk.Hold{Limit: sdk.LimitTimeout, Value: l.Timeout.String(), HeldBy: "a timer"})
	}
	if l.Memory > 0 {
		h = append(h, sdk.Hold{Limit: sdk.LimitMemory, Value: fmt.Sprint(l.Memory), HeldBy: "good will"})
	}
	return h
}

func (p *plain) Create(_ context.Context, req *sdk.CreateRequest) (sdk.Sandbox, error) {
	p.mu.Lock()
	p.specs = append(p.specs, *req)
	p.mu.Unlock()
	if err := req.Allocated(sdk.Handle{ID: req.ID, Data: json.RawMessage(`{"here":true}`)}); err != nil {
		return nil, err
	}
	if p.createErr != nil {
		return nil, p.createErr
	}
	b := &plainBox{p: p, ready: sdk.Ready{Workspace: filepath.Join(req.StateDir, "ws"), Input: req.Input, Output: filepath.Join(req.StateDir, "out"), Holds: p.holdsFor(&req.Limits)}}
	if req.Workspace.Source != "" {
		b.ready.Workspace = req.Workspace.Source
	}
	if p.ready != nil {
		p.ready(&b.ready)
	}
	p.mu.Lock()
	p.alive[req.ID] = true
	p.mu.Unlock()
	return b, errors.Join(os.MkdirAll(b.ready.Workspace, 0o700), os.MkdirAll(filepath.Join(req.StateDir, "out"), 0o700))
}

func (p *plain) Destroy(_ context.Context, h sdk.Handle) error {
	p.destroys.Add(1)
	if p.stuck != nil {
		<-p.stuck
	}
	if p.destroyErr != nil {
		return p.destroyErr
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.alive, h.ID)
	return nil
}

func (p *plain) Attach(context.Context, sdk.Handle) (sdk.Sandbox, error) {
	return nil, &sdk.Error{Reason: sdk.ReasonNotFound, Summary: "gone"}
}

type plainBox struct {
	p     *plain
	ready sdk.Ready
}

func (b *plainBox) Ready() sdk.Ready                              { return b.ready }
func (b *plainBox) Changes(context.Context) ([]sdk.Change, error) { return b.p.changes, nil }
func (b *plainBox) Exec(ctx context.Context, c *sdk.Command) (*sdk.Exit, error) {
	b.p.mu.Lock()
	b.p.commands = append(b.p.commands, c)
	b.p.mu.Unlock()
	if n := b.p.running.Add(1); n > b.p.most.Load() {
		b.p.most.Store(n)
	}
	defer b.p.running.Add(-1)
	if b.p.execErr != nil {
		return nil, b.p.execErr
	}
	if b.p.exec != nil {
		return b.p.exec(c)
	}
	cmd := exec.Command(c.Argv[0], c.Argv[1:]...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Dir, c.Stdin, c.Stdout, c.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/"}
	for k, v := range c.Env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	if err := cmd.Start(); err != nil {
		code := 126
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			code = 127
		}
		return &sdk.Exit{Cause: sdk.CauseExited, Code: code, NotStarted: true, Evidence: err.Error()}, nil
	}
	c.Started()
	stop := context.AfterFunc(ctx, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	defer stop()
	go func() {
		for n := range c.Signals {
			_ = cmd.Process.Signal(syscall.Signal(n))
		}
	}()
	_ = cmd.Wait() // the state says all
	if b.p.exit != nil {
		return b.p.exit, nil
	}
	st := cmd.ProcessState.Sys().(syscall.WaitStatus)
	x := &sdk.Exit{Cause: sdk.CauseExited, Code: st.ExitStatus(), Evidence: "wait status", OutputLost: b.p.lost, Usage: sdk.Usage{User: time.Millisecond, PeakMemory: 4096}}
	if st.Signaled() {
		x.Cause, x.Code, x.Signal = sdk.CauseSignaled, 128+int(st.Signal()), signalName(st.Signal())
	}
	if cause := sdk.CauseOf(ctx); cause != "" && st.Signaled() {
		x.Cause = cause
	}
	return x, nil
}

func signalName(s syscall.Signal) string {
	return map[syscall.Signal]string{syscall.SIGKILL: "SIGKILL", syscall.SIGSEGV: "SIGSEGV", syscall.SIGPIPE: "SIGPIPE", syscall.SIGTERM: "SIGTERM"}[s]
}

func (b *plainBox) Get(_ context.Context, path string, _ sdk.Format, w io.Writer) error {
	if b.p.getErr != nil {
		return b.p.getErr
	}
	if b.p.tar != nil {
		_, err := w.Write(b.p.tar)
		return err
	}
	tw := tar.NewWriter(w)
	err := filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(path, name)
		if err := tw.WriteHeader(&tar.Header{Name: rel, Typeflag: tar.TypeReg, Size: int64(len(data)), Mode: 0o644}); err != nil {
			return err
		}
		_, err = tw.Write(data)
		return err
	})
	return errors.Join(err, tw.Close())
}

// pool serves backends of the test by name.
type pool map[string]*backend.Backend

func (p pool) Get(_ context.Context, name string) (*backend.Backend, error) {
	if b, ok := p[name]; ok {
		return b, nil
	}
	return nil, &backend.NotFoundError{Name: name, Fix: "install it"}
}

func (p pool) GetMaker(ctx context.Context, name, _, _ string) (*backend.Backend, error) {
	return p.Get(ctx, name)
}

func (p pool) Open(context.Context, string) (*backend.Backend, error) {
	return nil, errors.New("there is no binary")
}

// world is a store and backends, and a directory for run files.
type world struct {
	t     *testing.T
	store *store.Store
	pool  pool
	dir   string
	opt   Options
}

func newWorld(t *testing.T, backends ...*plain) *world {
	t.Helper()
	st, err := store.Open(store.Options{Home: filepath.Join(t.TempDir(), "home")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	w := &world{t: t, store: st, pool: pool{}, dir: t.TempDir()}
	for _, p := range backends {
		p.alive = map[string]bool{}
		pipes := t.TempDir()
		local, err := client.InProcess(p, client.Options{PipeDir: pipes})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { local.Close() })
		facts, err := local.Describe(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		w.pool[facts.Name] = &backend.Backend{Client: local.Client, Name: facts.Name, Facts: *facts, Path: "/in/process", SHA256: "00"}
	}
	return w
}

func (w *world) runner() *Runner {
	o := w.opt
	o.Store, o.Backends = w.store, w.pool
	return New(o)
}

// load loads a run file from its text.
func (w *world) load(src string) []*runfile.Definition {
	w.t.Helper()
	name := filepath.Join(w.dir, "run.hcl")
	if err := os.WriteFile(name, []byte(src), 0o644); err != nil {
		w.t.Fatal(err)
	}
	conf, ds := runfile.Load([]string{name}, runfile.Options{Environ: []string{}})
	if ds.HasErrors() {
		var b bytes.Buffer
		_ = ds.Write(&b, diag.Style{})
		w.t.Fatalf("run file: %s", b.String())
	}
	return conf.Runs()
}

// shell is a run file whose run executes a shell script. More goes into the run block.
func shell(script, more string) string {
	return fmt.Sprintf("run \"r\" {\n  backend \"plain\" {}\n  command = [\"sh\", \"-c\", %s]\n%s\n}\n", hclString(script), more)
}

func hclString(s string) string {
	b, _ := json.Marshal(s)
	return strings.NewReplacer("${", "$${", "%{", "%%{").Replace(string(b))
}

func (w *world) run(src string, s Streams) *result.Result {
	w.t.Helper()
	res, err := w.runner().Run(context.Background(), w.load(src)[0], s)
	if err != nil {
		w.t.Fatal(err)
	}
	w.check(res)
	return res
}

// check looks at what must be so after every run, however it ended.
func (w *world) check(r *result.Result) {
	w.t.Helper()
	if r == nil {
		w.t.Fatal("no result")
	}
	if r.ExitCode == nil && r.Status == 0 && !r.OK {
		w.t.Error("a run that is not ok must not end with status 0")
	}
	rec, err := w.store.Load(r.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	data, err := rec.Result()
	if err != nil {
		w.t.Fatal(err)
	}
	stored, err := result.Decode(data)
	if err != nil || stored.Status != r.Status || stored.Cause != r.Cause || stored.Events != r.Events {
		w.t.Errorf("stored: %v, %+v", err, stored)
	}
	rep, err := w.store.Verify(context.Background(), r.ID)
	if err != nil || !rep.OK {
		w.t.Errorf("the record does not verify: %v, %+v", err, rep)
	}
	intents, err := w.store.Intents()
	if err != nil {
		w.t.Error(err)
	}
	if len(intents) > 0 && !r.Kept && len(r.Leaks) == 0 {
		w.t.Errorf("an intent was left: %+v", intents[0].Intent)
	}
}
