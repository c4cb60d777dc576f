package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/host/judge"
	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/internal/testbackend"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/tree"
)

// world is a store and a manager whose backend is plugins/fake, as its own process.
type world struct {
	*Manager
	t     *testing.T
	store *store.Store
	dir   string // a project
}

func TestMain(m *testing.M) { os.Exit(testbackend.Run(m)) }

func newWorld(t *testing.T) *world {
	t.Helper()
	bin := testbackend.Dir(t, "fake")
	t.Setenv("HUTCH_BACKEND_PATH", bin)
	t.Setenv("TMPDIR", t.TempDir())
	st, err := store.Open(store.Options{Home: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	dir, err := store.NewRuntimeDir()
	if err != nil {
		t.Fatal(err)
	}
	pool := backend.NewPool(backend.Options{Dir: dir.Path(), HostVersion: "test"})
	t.Cleanup(func() { _ = errors.Join(pool.Close(context.Background()), dir.Close(), st.Close()) })
	w := &world{t: t, store: st, dir: t.TempDir()}
	if err := os.WriteFile(filepath.Join(w.dir, "a.txt"), []byte("hello\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	w.Manager = New(Options{
		Run: run.Options{Store: st, Backends: pool},
		Destroy: func(ctx context.Context, i store.Intent) error {
			b, err := pool.Get(ctx, i.Backend)
			if err != nil {
				return err
			}
			return b.Destroy(ctx, sdk.Handle{ID: i.ID, Data: i.Handle})
		},
	})
	return w
}

func (w *world) make(name string) *store.SandboxInfo {
	w.t.Helper()
	info, err := w.Create(w.t.Context(), &runfile.Definition{
		Name: "t", Instance: "t", Backends: []*runfile.Backend{runfile.NewBackend("fake")}, Env: map[string]string{"SECRET": "hunter2"},
		Workspace: &runfile.Workspace{Source: w.dir, Mode: "private"},
	}, name)
	if err != nil {
		w.t.Fatal(err)
	}
	return info
}

// sh runs a script in a sandbox and returns what it printed.
func (w *world) sh(name, script string) string {
	w.t.Helper()
	s, err := w.Open(w.t.Context(), name, Shared)
	if err != nil {
		w.t.Fatal(err)
	}
	defer s.Close()
	var out bytes.Buffer
	r, err := s.Run(w.t.Context(), Command{Argv: []string{"sh", "-c", script}}, run.Streams{Stdout: &out})
	if err != nil || r.Error != nil {
		w.t.Fatalf("%s: %v %+v", script, err, r.Error)
	}
	return out.String()
}

// A backend that fails after it has begun leaves no record and no name, and says why.
func TestCreationThatFails(t *testing.T) {
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "t.hcl")
	if err := os.WriteFile(file, []byte(`run "t" {
  backend "fake" { create_error = "quota" }
  command = ["true"]
}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	conf, ds := runfile.Load([]string{file}, runfile.Options{Environ: []string{}})
	if ds.HasErrors() {
		t.Fatal(ds)
	}
	_, err := w.Create(t.Context(), conf.Runs()[0], "web")
	if err == nil || !strings.Contains(err.Error(), "create_error") {
		t.Errorf("got %v", err)
	}
	if info := w.make("web"); info.State != store.SandboxReady {
		t.Errorf("the name is taken: %+v", info)
	}
}

func TestLifeOfASandbox(t *testing.T) {
	w := newWorld(t)
	info := w.make("web")
	if info.State != store.SandboxReady || len(info.Handle) == 0 || info.EnvNames[0] != "SECRET" {
		t.Errorf("%+v", info)
	}
	public, err := json.Marshal(info)
	if err != nil || strings.Contains(string(public), "hunter2") {
		t.Errorf("the record shows a value: %s %v", public, err)
	}
	if out := w.sh("web", "echo $SECRET; echo more >> a.txt; cat a.txt"); out != "hunter2\nhello\nmore\n" {
		t.Errorf("%q", out)
	}
	st, err := w.Inspect(t.Context(), "web")
	if err != nil || st.Condition != StateReady || st.Changes == nil || st.Changes.Entries != 1 {
		t.Errorf("%+v %v", st, err)
	}
	if err := w.Reset(t.Context(), "web", true, false); err != nil {
		t.Fatal(err)
	}
	if out := w.sh("web", "cat a.txt"); out != "hello\n" {
		t.Errorf("after a hard reset: %q", out)
	}
	runs, err := w.store.List(store.Filter{})
	if err != nil || len(runs) != 2 || runs[0].Sandbox != "web" {
		t.Errorf("each command is a run: %+v %v", runs, err)
	}
	if err := w.Remove(t.Context(), info.ID, false); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Open(t.Context(), "web", Shared); !errors.Is(err, store.ErrNoSandbox) {
		t.Errorf("%v", err)
	}
	if err := w.store.VerifyAll(t.Context(), "", func(r *store.Report) error {
		if !r.OK {
			t.Errorf("%+v", r)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// A backend can be stopped while the record of the last command is completed, and not before.
func TestACommandIsOverBeforeItsRecordIs(t *testing.T) {
	w := newWorld(t)
	w.make("web")
	s, err := w.Open(t.Context(), "web", Shared)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	over := 0
	var out bytes.Buffer
	c := Command{Argv: []string{"echo", "hello"}, Over: func() {
		over++
		runs, err := w.store.List(store.Filter{})
		if err != nil || len(runs) != 1 || runs[0].State != store.StateRunning || out.String() != "hello\n" {
			t.Errorf("over with %q printed, and these runs: %+v %v", out.String(), runs, err)
		}
		if err := s.backend.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}}
	r, err := s.Run(t.Context(), c, run.Streams{Stdout: &out})
	if err != nil || !r.OK || over != 1 {
		t.Errorf("over %d times: %+v %v", over, r, err)
	}
}

func TestWhoHasASandboxAlone(t *testing.T) {
	w := newWorld(t)
	w.make("web")
	s, err := w.Open(t.Context(), "web", Shared)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for what, err := range map[string]error{"reset": w.Reset(t.Context(), "web", false, false), "rm": w.Remove(t.Context(), "web", false)} {
		var busy *BusyError
		if !errors.As(err, &busy) || !errors.Is(err, store.ErrInUse) {
			t.Errorf("%s beside a command: %v", what, err)
		}
	}
	ended := make(chan error, 1)
	go func() {
		_, err := s.Run(t.Context(), Command{Argv: []string{"sleep", "600"}}, run.Streams{})
		ended <- errors.Join(err, s.Close())
	}()
	if err := w.Remove(t.Context(), "web", true); err != nil {
		t.Errorf("rm -f: %v", err)
	}
	<-ended
}

func TestHalvesAreRefused(t *testing.T) {
	w := newWorld(t)
	info := w.make("web")
	rec, err := w.store.OpenSandbox(t.Context(), info.ID, true, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := rec.Update(func(i *store.SandboxInfo) { i.State = store.SandboxRemoving }); err != nil {
		t.Fatal(err)
	}
	rec.Close()
	if _, err := w.Open(t.Context(), "web", Shared); !errors.Is(err, store.ErrHalf) || !strings.Contains(err.Error(), "hutch gc") {
		t.Errorf("%v", err)
	}
	if err := w.Remove(t.Context(), "web", false); err != nil { // which goes on with it
		t.Error(err)
	}
	// The backend lost it: the record says what to do.
	info = w.make("lost")
	if err := w.opt.Destroy(t.Context(), info.Intent()); err != nil {
		t.Fatal(err)
	}
	var gone *GoneError
	if _, err := w.Open(t.Context(), "lost", Shared); !errors.As(err, &gone) || !strings.Contains(err.Error(), "hutch rm lost") {
		t.Errorf("%v", err)
	}
	if st, err := w.Inspect(t.Context(), "lost"); err != nil || st.Condition != StateGone {
		t.Errorf("%+v %v", st, err)
	}
	if err := w.Remove(t.Context(), "lost", false); err != nil {
		t.Error(err)
	}
}

func TestWhatIsCopiedOutIsHostile(t *testing.T) {
	w := newWorld(t)
	w.make("web")
	w.sh("web", "mkdir evil good; ln -s /etc evil/out; echo x > evil/x; echo 12345678 > big; echo ok > good/f; mkfifo pipe")
	s, err := w.Open(t.Context(), "web", Shared)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	to := t.TempDir()
	for from, caps := range map[string]tree.Caps{
		"/workspace/evil": {}, "/workspace/big": {Bytes: 4}, "/workspace/pipe": {}, "/workspace/nothing": {}, "relative": {}, "/workspace/good": {Entries: -1, Bytes: 1},
	} {
		if err := s.CopyOut(t.Context(), from, to, caps, nil); err == nil {
			t.Errorf("%s came out", from)
		}
	}
	if left, _ := os.ReadDir(to); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if err := s.CopyOut(t.Context(), "/workspace/good/.", filepath.Join(to, "new"), tree.Caps{}, nil); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(filepath.Join(to, "new", "f")); err != nil || string(b) != "ok\n" {
		t.Errorf("%q %v", b, err)
	}
}

// TestS3WhatIsCopiedOutIsJudged has repositories and a hook for tools in a sandbox, some of whose parts the host has
// already.
func TestS3WhatIsCopiedOutIsJudged(t *testing.T) {
	w := newWorld(t)
	w.make("web")
	w.sh("web", "mkdir -p bare/refs bare/objects half/refs hooks fine; echo x | tee bare/HEAD bare/config half/config hooks/pre-commit .envrc fine/f >/dev/null; cp -r bare fine/.git; cp -r bare deep; mkdir whole; cp -r bare whole/b")
	s, err := w.Open(t.Context(), "web", Shared)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, c := range []struct{ name, from, to, there string }{
		{"a bare repository", "/workspace/bare", "", ""},
		{"a bare repository's contents", "/workspace/bare/.", "", ""},
		{"a bare repository below", "/workspace/whole", "", ""},
		{"a repository", "/workspace/fine", "", ""},
		{"its second half", "/workspace/half/.", "half", "half/HEAD half/objects/x"},
		{"a hook into .git", "/workspace/hooks", ".git", ".git/HEAD"},
		{"a hook as a file", "/workspace/hooks/pre-commit", ".git/hooks/pre-commit", ".git/hooks/x"},
		{"a file that makes it one", "/workspace/bare/HEAD", "half/HEAD", "half/refs/x half/objects/x half/config"},
		{"a tool's file", "/workspace/.envrc", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			to := t.TempDir()
			for _, p := range strings.Fields(c.there) {
				if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(to, p)), 0o755), os.WriteFile(filepath.Join(to, p), nil, 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			list := func() (paths []string) {
				_ = filepath.WalkDir(to, func(p string, _ fs.DirEntry, _ error) error { paths = append(paths, p); return nil })
				return paths
			}
			before, bad := list(), new(judge.RefusedError)
			if err := s.CopyOut(t.Context(), c.from, filepath.Join(to, c.to), tree.Caps{}, nil); !errors.As(err, &bad) || len(bad.Flags) != 1 {
				t.Errorf("%v", err)
			}
			if d := cmp.Diff(before, list()); d != "" {
				t.Error(d)
			}
			if err := s.CopyOut(t.Context(), c.from, filepath.Join(to, c.to), tree.Caps{}, map[judge.Rule]bool{judge.Git: true, judge.Tools: true}); err != nil {
				t.Errorf("allowed: %v", err)
			}
		})
	}
}

// TestS14LargeFilesAreRefusedBySize has a file of 1 TiB that is one hole, of which next to nothing may be read.
func TestS14LargeFilesAreRefusedBySize(t *testing.T) {
	w := newWorld(t)
	w.make("web")
	w.sh("web", "mkdir d; dd if=/dev/null of=d/sparse bs=1 seek=1099511627776")
	s, err := w.Open(t.Context(), "web", Shared)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	read := func() (n int64) {
		b, err := os.ReadFile("/proc/self/io")
		if err == nil {
			_, err = fmt.Sscanf(string(b), "rchar: %d", &n)
		}
		if err != nil {
			t.Skipf("what this process read cannot be found out: %v", err)
		}
		return n
	}
	for _, from := range []string{"/workspace/d/sparse", "/workspace/d"} {
		before := read()
		if err := s.CopyOut(t.Context(), from, t.TempDir(), tree.Caps{}, nil); err == nil || !strings.Contains(err.Error(), "bytes") {
			t.Errorf("%s: %v", from, err)
		}
		if n := read() - before; n > 64<<20 {
			t.Errorf("%s: %d bytes were read", from, n)
		}
	}
}

// TestHomeComesBack has what home blocks put there after a reset, and keeps what was made of it where that is there.
func TestHomeComesBack(t *testing.T) {
	w := newWorld(t)
	skills := filepath.Join(t.TempDir(), "skills")
	if err := os.MkdirAll(filepath.Join(skills, "deep"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(skills, "deep", "one.md"), []byte("skill\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Create(t.Context(), &runfile.Definition{
		Name: "t", Instance: "t", Backends: []*runfile.Backend{runfile.NewBackend("fake")},
		Home: []runfile.HomeFile{{Path: ".agent/settings.json", Content: []byte("{}\n"), Mode: 0o600}, {Path: ".agent/skills", Source: skills}},
	}, "agent"); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(skills); err != nil { // what the sandbox was made with counts
		t.Fatal(err)
	}
	const look = "cd && cat .agent/settings.json .agent/skills/deep/one.md && stat -c %a .agent/settings.json"
	const asMade = "{}\nskill\n600\n"
	if got := w.sh("agent", look); got != asMade {
		t.Fatalf("made, it has %q", got)
	}
	w.sh("agent", "cd && echo mine > .agent/settings.json")
	for _, rest := range []func() error{
		func() error { return w.Stop(t.Context(), "agent", false) }, // which keeps the home, here
		func() error { return w.Start(t.Context(), "agent") },
	} {
		if err := rest(); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.sh("agent", look); got != "mine\nskill\n600\n" {
		t.Errorf("after a stop it has %q", got)
	}
	for _, hard := range []bool{false, true} {
		if err := w.Reset(t.Context(), "agent", hard, false); err != nil {
			t.Fatal(err)
		}
		if got := w.sh("agent", look); got != asMade {
			t.Errorf("after a reset, hard %v, it has %q", hard, got)
		}
	}
	list, err := w.store.Sandboxes()
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	state := w.store.Paths().SandboxState(list[0].ID)
	if err := w.Remove(t.Context(), "agent", false); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(state); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("removed, it leaves %s: %v", state, err)
	}
}
