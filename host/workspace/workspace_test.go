package workspace

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/sandbox"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/host/workspace/files"
	"github.com/hutch-run/hutch/host/workspace/review"
	"github.com/hutch-run/hutch/internal/testbackend"
)

func TestMain(m *testing.M) { os.Exit(testbackend.Run(m)) }

// world is a store and a manager whose backend is plugins/fake, as its own process.
type world struct {
	*sandbox.Manager
	t     *testing.T
	store *store.Store
	dir   string // a project with the file a.txt
}

func newWorld(t *testing.T) *world {
	t.Helper()
	t.Setenv("HUTCH_BACKEND_PATH", testbackend.Dir(t, "fake"))
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
	w.Manager = sandbox.New(sandbox.Options{Run: run.Options{Store: st, Backends: pool, TakeBase: review.WriteBase}})
	return w
}

// make makes the sandbox web on the project, and opens its workspace.
func (w *world) make(mode string, lock sandbox.Lock) *Workspace {
	w.t.Helper()
	_, err := w.Create(w.t.Context(), &runfile.Definition{
		Name: "t", Instance: "t", Backends: []*runfile.Backend{runfile.NewBackend("fake")},
		Workspace: &runfile.Workspace{Source: w.dir, Mode: mode},
	}, "web")
	if err != nil {
		w.t.Fatal(err)
	}
	ws, err := Open(w.t.Context(), w.Manager, "web", lock)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = ws.Close() })
	return ws
}

// events are those of the sandbox's chain after it was made, but for changes of its record.
func (w *world) events(id string) (list []store.Event) {
	w.t.Helper()
	b, err := os.ReadFile(filepath.Join(w.store.Paths().Sandbox(id), "events.jsonl"))
	if err != nil {
		w.t.Fatal(err)
	}
	ready := false
	for line := range bytes.Lines(b) {
		var e store.Event
		if err := json.Unmarshal(line, &e); err != nil {
			w.t.Fatal(err)
		}
		if ready && e.Type != store.EventSandboxRecord {
			list = append(list, e)
		}
		ready = ready || e.Type == store.EventSandboxReady
	}
	if rep, err := w.store.VerifySandbox(w.t.Context(), id); err != nil || !rep.OK {
		w.t.Errorf("%+v %v", rep, err)
	}
	return list
}

// TestFiles reads files without the backend where they lie on this host; changes are in the sandbox's chain.
func TestFiles(t *testing.T) {
	w := newWorld(t)
	ws := w.make("shared", sandbox.Shared)
	f, err := ws.Files(files.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, err := f.Read(t.Context(), files.ReadRequest{Path: "a.txt"}); err != nil || got.Text != "hello\n" {
		t.Errorf("read %+v, %v", got, err)
	}
	if ws.started() != nil {
		t.Error("the backend was started to read a file of this host")
	}
	if _, err := ws.subject(t.Context()); err == nil || !strings.Contains(err.Error(), "its workspace is shared") {
		t.Errorf("a review of a shared workspace: %v", err)
	}
	if _, err := f.Write(t.Context(), files.WriteRequest{Path: "b.txt", Data: []byte("secret words\n")}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Remove(t.Context(), "a.txt", false); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(w.dir + "/b.txt"); err != nil || string(b) != "secret words\n" {
		t.Errorf("the project has %q, %v", b, err)
	}
	var got []string
	for _, e := range w.events(ws.Record.ID) {
		got = append(got, string(e.Type)+" "+string(e.Data))
	}
	want := []string{
		`sandbox.write {"op":"write","path":"b.txt","size":13,` +
			`"sha256":"688f4febd318379e34aa4318bcf66e40e4a637c5a69f1b10e32585b226ba0ccc"}`,
		`sandbox.delete {"op":"remove","path":"a.txt","type":"file"}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestApplyAndUndo changes a file that only the backend has, applies that, takes it back, and reads the chain.
func TestApplyAndUndo(t *testing.T) {
	w := newWorld(t)
	ws := w.make("private", sandbox.Shared)
	f, err := ws.Files(files.Options{})
	if err != nil {
		t.Fatal(err)
	}
	edit := files.EditRequest{Path: "a.txt", Edits: []files.Edit{{Old: "hello", New: "bye"}}}
	if _, err := f.EditFile(t.Context(), edit); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Close(), ws.Close()); err != nil {
		t.Fatal(err)
	}
	ledger := Ledger(w.store)
	r, err := OpenReview(t.Context(), w.Manager, "web", sandbox.Exclusive, review.Options{Keep: ledger.Dir()})
	if err != nil {
		t.Fatal(err)
	}
	for _, dry := range []bool{true, false} {
		out, err := r.Apply(t.Context(), ledger, r.All(), review.Policy{}, dry)
		if err != nil || len(out.Taken) != 1 || len(out.Notes) > 0 || (out.Undo == "") != dry {
			t.Fatalf("apply, dry %v: %+v, %v", dry, out, err)
		}
		text, err := os.ReadFile(w.dir + "/a.txt")
		if want := map[bool]string{true: "hello\n", false: "bye\n"}[dry]; err != nil || string(text) != want {
			t.Errorf("dry %v: the project has %q, %v", dry, text, err)
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if a, notes, err := Undo(t.Context(), w.store, ledger, "web"); err != nil || len(a.Paths) != 1 || len(notes) > 0 {
		t.Errorf("undo: %+v, %q, %v", a, notes, err)
	}
	var got []store.EventType
	for _, e := range w.events(ws.Record.ID) {
		got = append(got, e.Type)
	}
	want := []store.EventType{store.EventSandboxWrite, store.EventSandboxApply, store.EventSandboxUndo}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestNotes bounds what an event says of an apply, and does without a sandbox that is removed.
func TestNotes(t *testing.T) {
	w := newWorld(t)
	ws := w.make("private", sandbox.Exclusive)
	some := &review.Applied{ID: "x", Project: w.dir, Placed: []review.Placed{
		{Path: "gone"}, {Path: "new", Type: review.File, Size: 4, SHA256: "00"},
	}}
	many := &review.Applied{ID: "y", Project: w.dir}
	for range 2000 {
		many.Placed = append(many.Placed, review.Placed{Path: strings.Repeat("x", 200), Type: review.File})
	}
	apply := func(n applyNote) error { return ws.changed(store.EventSandboxApply, n) }
	undo := func(n applyNote) error { return undone(t.Context(), w.store, ws.Record.ID, n) }
	removed := func(n applyNote) error { return undone(t.Context(), w.store, w.store.NewID(), n) }
	if err := errors.Join(chained(some, apply), chained(many, apply), ws.Close(), chained(some, undo), chained(some, removed)); err != nil {
		t.Fatal(err)
	}
	type line struct {
		Type   store.EventType
		Paths  int
		SHA256 string
		Placed []review.Placed
	}
	var got []line
	for _, e := range w.events(ws.Record.ID) {
		l := line{Type: e.Type}
		if err := json.Unmarshal(e.Data, &l); err != nil || len(l.SHA256) != 64 {
			t.Fatalf("%s: %v", e.Data, err)
		}
		if l.SHA256 = ""; len(l.Placed) > 2 {
			if len(l.Placed) == l.Paths {
				t.Error("all of 2000 paths fit into an event")
			}
			l.Placed = nil
		}
		got = append(got, l)
	}
	want := []line{
		{Type: store.EventSandboxApply, Paths: 2, Placed: some.Placed}, {Type: store.EventSandboxApply, Paths: 2000},
		{Type: store.EventSandboxUndo, Paths: 2, Placed: some.Placed},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
