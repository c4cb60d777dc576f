package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hutch-run/hutch/host/agent/mcp/call"
	"github.com/hutch-run/hutch/host/agent/tools"
	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/workspace/review"
	"github.com/hutch-run/hutch/internal/testbackend"
	"github.com/hutch-run/hutch/sdk"
)

// world is a server whose backend is plugins/fake, as its own process, and a client of it.
type world struct {
	*Server
	t       *testing.T
	store   *store.Store
	project string
	client  *mcp.ClientSession

	progress chan *mcp.ProgressNotificationParams
}

func newServer(t *testing.T, change func(*Options)) *world {
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
	w := &world{t: t, store: st, project: t.TempDir(), progress: make(chan *mcp.ProgressNotificationParams, 1000)}
	for name, text := range map[string]string{"a.txt": "hello\n", "src/main.go": "package main\n\nfunc main() {}\n"} {
		p := filepath.Join(w.project, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	o := Options{Call: call.Call{Backend: "fake", Version: "test", Workspaces: []string{w.project}}, Manager: sandbox.New(sandbox.Options{
		Run: run.Options{Store: st, Backends: pool, TakeBase: review.WriteBase},
		Destroy: func(ctx context.Context, i store.Intent) error {
			b, err := pool.Get(ctx, i.Backend)
			if err != nil {
				return err
			}
			return b.Destroy(ctx, sdk.Handle{ID: i.ID, Data: i.Handle})
		},
	})}
	if change != nil {
		change(&o)
	}
	w.Server = New(o)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := w.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return w
}

// newWorld is a server with a client in the same process.
func newWorld(t *testing.T, change func(*Options)) *world {
	t.Helper()
	w := newServer(t, change)
	ours, theirs := mcp.NewInMemoryTransports()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go func() { _ = w.server.Run(ctx, ours) }()
	w.connect(theirs)
	return w
}

func (w *world) connect(transport mcp.Transport) {
	w.t.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: "test"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { w.progress <- r.Params },
	})
	session, err := c.Connect(w.t.Context(), transport, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = session.Close() })
	w.client = session
}

// m are the arguments of a call.
type m = map[string]any

// call calls a tool and decodes its structured answer; want is a part of the error, "" for none.
func (w *world) call(name string, args m, out any, want string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Minute)
	defer cancel()
	r, err := w.client.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		w.t.Fatalf("%s %v: %v", name, args, err)
	}
	var text []string
	for _, c := range r.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			text = append(text, t.Text)
		}
	}
	got := strings.Join(text, "\n")
	switch {
	case r.IsError && want == "":
		w.t.Fatalf("%s %v: %s", name, args, got)
	case !r.IsError && want != "":
		w.t.Fatalf("%s %v: no error, want %q: %s", name, args, want, got)
	case r.IsError:
		if !strings.Contains(got, want) {
			w.t.Errorf("%s %v: the error is %q, want %q", name, args, got, want)
		}
		return
	}
	b, err := json.Marshal(r.StructuredContent)
	if err != nil {
		w.t.Fatal(err)
	}
	if out != nil {
		if err := json.Unmarshal(b, out); err != nil {
			w.t.Fatalf("%s: %v\n%s", name, err, b)
		}
	}
	var a any
	if err := json.Unmarshal(b, &a); err != nil {
		w.t.Fatal(err)
	}
	w.said(name, got, a)
}

// said checks that the text of an answer has the texts of the structured one as they are.
func (w *world) said(name, text string, v any) {
	w.t.Helper()
	switch v := v.(type) {
	case string:
		if !strings.Contains(text, strings.TrimSuffix(v, "\n")) {
			w.t.Errorf("%s: %q is not in the text: %s", name, v, text)
		}
	case []any:
		for _, x := range v {
			w.said(name, text, x)
		}
	case m:
		for key, x := range v {
			w.said(name, text, key+":")
			w.said(name, text, x)
		}
	}
}

// create makes a sandbox and returns its name.
func (w *world) create(args m) string {
	w.t.Helper()
	var out sandboxOut
	w.call("create_sandbox", args, &out, "")
	return out.Name
}

func (w *world) sh(sb, line string) tools.ExecOut {
	w.t.Helper()
	var out tools.ExecOut
	w.call("exec", m{"sandbox": sb, "command": line}, &out, "")
	return out
}
