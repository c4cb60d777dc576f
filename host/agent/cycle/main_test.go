package cycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hutch-run/hutch/host/agent/model"
	"github.com/hutch-run/hutch/host/agent/model/modeltest"
	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/workspace"
	"github.com/hutch-run/hutch/host/workspace/review"
	"github.com/hutch-run/hutch/internal/testbackend"
	"github.com/hutch-run/hutch/sdk"
)

func TestMain(m *testing.M) {
	if point := os.Getenv("HUTCH_TEST_DIE"); point != "" {
		dieAt(point) // does not return
	}
	os.Exit(testbackend.Run(m))
}

// world is a store with a project, and the backend plugins/fake as its own process.
type world struct {
	Options
	project string
	close   func() error
}

// open opens the world that lies in home and project.
func open(home, project string) (*world, error) {
	st, err := store.Open(store.Options{Home: home})
	if err != nil {
		return nil, err
	}
	dir, err := store.NewRuntimeDir()
	if err != nil {
		return nil, err
	}
	pool := backend.NewPool(backend.Options{Dir: dir.Path(), HostVersion: "test"})
	w := &world{project: project, close: func() error { return errors.Join(pool.Close(context.Background()), dir.Close(), st.Close()) }}
	w.Store = st
	w.Manager = sandbox.New(sandbox.Options{
		Run: run.Options{Store: st, Backends: pool, TakeBase: review.WriteBase},
		Destroy: func(ctx context.Context, i store.Intent) error {
			b, err := pool.Get(ctx, i.Backend)
			if err != nil {
				return err
			}
			return b.Destroy(ctx, sdk.Handle{ID: i.ID, Data: i.Handle})
		},
	})
	w.Apply = func(ctx context.Context, ref string) error { return bring(ctx, w, ref) }
	return w, nil
}

// bring applies everything, as the command does.
func bring(ctx context.Context, w *world, ref string) error {
	ledger := workspace.Ledger(w.Store)
	r, err := workspace.OpenReview(ctx, w.Manager, ref, sandbox.Exclusive, review.Options{Keep: ledger.Dir()})
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = r.Apply(ctx, ledger, r.All(), review.Policy{}, false)
	return err
}

// says makes a world's model answer by steps.
func (w *world) says(steps ...modeltest.Step) *modeltest.Client {
	c := modeltest.New(steps...)
	w.Open = func(context.Context, model.Config) (model.Client, error) { return c, nil }
	return c
}

func newWorld(t *testing.T) *world {
	t.Helper()
	bin := testbackend.Dir(t, "fake")
	t.Setenv("HUTCH_BACKEND_PATH", bin)
	t.Setenv("TMPDIR", t.TempDir())
	project := t.TempDir()
	for name, text := range map[string]string{"a.txt": "hello\n", "src/main.sh": "echo one\n", Convention("7"): "Make main.sh say two.\n"} {
		p := filepath.Join(project, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	w, err := open(t.TempDir(), project)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return w
}

// work is the work of cycle 7 of a project.
func work(project string, change func(*runfile.Cycle)) (Work, error) {
	b := &runfile.Cycle{ToolCalls: runfile.DefaultToolCalls, Name: "test", Model: &runfile.Model{Config: model.Config{Name: "m", Provider: model.Scripted, APIKey: "hunter2hunter2"}}, Box: &runfile.Definition{
		Name: "test", Instance: "test", Backends: []*runfile.Backend{runfile.NewBackend("fake")}, Env: map[string]string{}, Network: network.Network{Mode: sdk.NetworkNone},
		Workspace: &runfile.Workspace{Source: project, Mode: string(sdk.WorkspacePrivate)},
	}}
	if change != nil {
		change(b)
	}
	return Prepare("7", b)
}

// do runs a cycle to its end.
func (w *world) do(t *testing.T, change func(*runfile.Cycle)) *Result {
	t.Helper()
	job, err := work(w.project, change)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	r, err := Run(ctx, w.Options, job)
	if err != nil {
		t.Fatal(err)
	}
	w.verify(t, r)
	return r
}

// verify checks the record of a cycle, and that a sandbox is there exactly when the result says so.
func (w *world) verify(t *testing.T, r *Result) {
	t.Helper()
	rep, err := w.Store.Verify(t.Context(), r.ID)
	if err != nil {
		t.Fatal(err)
	}
	if !rep.OK {
		t.Errorf("the record does not verify: %+v", rep)
	}
	list, err := w.Store.Sandboxes()
	if err != nil {
		t.Fatal(err)
	}
	kept := 0
	if r.Sandbox != nil && r.Sandbox.Kept {
		kept = 1
	}
	if len(list) != kept {
		t.Errorf("there are %d sandboxes, and the result says %+v", len(list), r.Sandbox)
	}
}

var calls int

// call is a call with its own id.
func call(name, args string, values ...any) model.ToolCall {
	calls++
	return model.ToolCall{ID: fmt.Sprintf("id-%d", calls), Name: name, Arguments: fmt.Sprintf(args, values...)}
}

func done(summary string) model.ToolCall {
	return call(finishTool, `{"outcome":"done","summary":%q}`, summary)
}

// read is a file of the project.
func (w *world) read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(w.project, name))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(b)
}
