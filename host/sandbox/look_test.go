package sandbox

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/host/files"
	"github.com/hutch-run/hutch/host/review"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/store"
)

// makeShared makes a sandbox whose workspace is the project itself, which the fake backend says where to find.
func (w *world) makeShared(name string) *store.SandboxInfo {
	w.t.Helper()
	info, err := w.Create(w.t.Context(), &runfile.Definition{
		Name: "t", Instance: "t", Backends: []*runfile.Backend{runfile.NewBackend("fake")},
		Workspace: &runfile.Workspace{Source: w.dir, Mode: "shared"},
	}, name)
	if err != nil {
		w.t.Fatal(err)
	}
	return info
}

// events are what a sandbox's chain says after it was made.
func (w *world) events(id string) []store.Event {
	w.t.Helper()
	b, err := os.ReadFile(filepath.Join(w.store.Paths().Sandbox(id), "events.jsonl"))
	if err != nil {
		w.t.Fatal(err)
	}
	var list []store.Event
	for line := range strings.Lines(string(b)) {
		var e store.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			w.t.Fatal(err)
		}
		list = append(list, e)
	}
	for i, e := range list {
		if e.Type == store.EventSandboxReady {
			return list[i+1:]
		}
	}
	w.t.Fatal("the sandbox is not ready")
	return nil
}

// TestLook reads files without the backend where they lie on this host, and starts it for the first change.
func TestLook(t *testing.T) {
	w := newWorld(t)
	info := w.makeShared("web")
	l, err := w.Look(t.Context(), "web")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := l.Files(files.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, err := f.Read(t.Context(), files.ReadRequest{Path: "a.txt"}); err != nil || got.Text != "hello\n" {
		t.Errorf("read %+v, %v", got, err)
	}
	if l.open != nil {
		t.Error("the backend was started to read a file of this host")
	}
	if l.Base() != w.store.Paths().SandboxBase(info.ID) || l.Ready().Workspace == "" || l.Record.Name != "web" {
		t.Errorf("base %s, ready %+v, record %+v", l.Base(), l.Ready(), l.Record)
	}
	if _, err := l.Subject(); err == nil || !strings.Contains(err.Error(), "its workspace is shared") {
		t.Errorf("a review of a shared workspace: %v", err)
	}
	if _, err := f.Write(t.Context(), files.WriteRequest{Path: "b.txt", Data: []byte("secret words\n")}); err != nil {
		t.Fatal(err)
	}
	if l.open == nil {
		t.Error("a change was made without the backend")
	}
	if _, err := f.Remove(t.Context(), "a.txt", false); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(w.dir + "/b.txt"); err != nil || string(b) != "secret words\n" {
		t.Errorf("the project has %q, %v", b, err)
	}
	var busy *BusyError
	if err := w.Remove(t.Context(), "web", false); !errors.As(err, &busy) {
		t.Errorf("removed while somebody looked: %v", err)
	}
	if err := errors.Join(f.Close(), l.Close(), l.Close()); err != nil {
		t.Errorf("close, and close once more: %v", err)
	}
	var told []string
	for _, e := range w.events(info.ID) {
		if e.Type == store.EventSandboxRecord {
			continue
		}
		told = append(told, string(e.Type)+" "+string(e.Data))
	}
	want := []string{
		`sandbox.write {"op":"write","path":"b.txt","size":13,"sha256":"688f4febd318379e34aa4318bcf66e40e4a637c5a69f1b10e32585b226ba0ccc"}`,
		`sandbox.delete {"op":"remove","path":"a.txt","type":"file"}`,
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Error(diff)
	}
	if rep, err := w.store.VerifySandbox(t.Context(), info.ID); err != nil || !rep.OK {
		t.Errorf("%+v %v", rep, err)
	}
}

// TestLookThroughTheBackend looks at a sandbox whose files only its backend has, and at those that cannot be opened.
func TestLookThroughTheBackend(t *testing.T) {
	w := newWorld(t)
	if _, err := w.Look(t.Context(), "web"); !errors.Is(err, store.ErrNoSandbox) {
		t.Errorf("one that is not there: %v", err)
	}
	info := w.make("web")
	l, err := w.Look(t.Context(), info.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if l.open == nil {
		t.Fatal("the backend was not started")
	}
	f, err := l.Files(files.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.EditFile(t.Context(), files.EditRequest{Path: "a.txt", Edits: []files.Edit{{Old: "hello", New: "bye"}}}); err != nil {
		t.Fatal(err)
	}
	if s, err := l.Subject(); err != nil || s.Project != w.dir || s.Remote == nil {
		t.Errorf("%+v %v", s, err)
	}
	if err := errors.Join(f.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}
	if e := w.events(info.ID); e[len(e)-1].Type != store.EventSandboxWrite {
		t.Errorf("the last event is %+v", e[len(e)-1])
	}
	rec, err := w.store.OpenSandbox(t.Context(), info.ID, true, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(rec.Update(func(i *store.SandboxInfo) { i.State = store.SandboxRemoving }), rec.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Look(t.Context(), "web"); !errors.Is(err, store.ErrHalf) {
		t.Errorf("half a sandbox: %v", err)
	}
}

// TestWhatTheChainSays copies files in and out, applies and undoes, and reads what the sandbox's chain says about it.
func TestWhatTheChainSays(t *testing.T) {
	w := newWorld(t)
	info := w.make("web")
	s, err := w.Open(t.Context(), "web", Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	workspace, from := s.Ready().Workspace, t.TempDir()
	if err := os.WriteFile(from+"/new", []byte("new\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	applied := &review.Applied{ID: "x", Project: w.dir, Placed: []review.Placed{{Path: "gone"}, {Path: "new", Type: review.File, Size: 4, SHA256: "00"}}}
	many := &review.Applied{ID: "y", Project: w.dir}
	for range 2000 {
		many.Placed = append(many.Placed, review.Placed{Path: strings.Repeat("x", 200), Type: review.File})
	}
	for _, err := range []error{
		s.CopyIn(t.Context(), from+"/new", "/workspace/"), s.CopyIn(t.Context(), from, "/workspace/tree"), s.CopyOut(t.Context(), "/workspace/new", from+"/out", Caps{}, nil),
		s.applied(applied), s.applied(many), s.Close(),
		undone(t.Context(), w.store, info.ID, applied), undone(t.Context(), w.store, w.store.NewID(), applied), w.Reset(t.Context(), "web", false, false),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	type line struct {
		Type              store.EventType
		Way, Path, SHA256 string
		Tar               bool
		Size, Paths       int
		Placed            []review.Placed
	}
	var got []line
	for _, e := range w.events(info.ID) {
		if e.Type == store.EventSandboxRecord {
			continue
		}
		l := line{Type: e.Type}
		if err := json.Unmarshal(e.Data, &l); err != nil {
			t.Fatal(err)
		}
		if l.Tar || l.Paths > 0 {
			if len(l.SHA256) != 64 || l.Paths == 0 && l.Size == 0 {
				t.Errorf("%+v has no size or no hash", l)
			}
			l.SHA256, l.Size = "", 0
		}
		if n := len(l.Placed); n > 2 {
			if n == l.Paths {
				t.Error("all of 2000 paths fit into an event")
			}
			l.Placed = nil
		}
		l.Path = strings.Replace(l.Path, workspace, "/workspace", 1)
		got = append(got, l)
	}
	in := line{Type: store.EventSandboxCopy, Way: "in", Path: "/workspace/new", Size: 4, SHA256: "7aa7a5359173d05b63cfd682e3c38487f3cb4f7f1d60659fe59fab1505977d4c"}
	want := []line{
		in, {Type: store.EventSandboxCopy, Way: "in", Path: "/workspace/tree", Tar: true}, {Type: store.EventSandboxCopy, Way: "out", Path: "/workspace/new"},
		{Type: store.EventSandboxApply, Paths: 2, Placed: applied.Placed}, {Type: store.EventSandboxApply, Paths: 2000},
		{Type: store.EventSandboxUndo, Paths: 2, Placed: applied.Placed}, {Type: store.EventSandboxReset},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if rep, err := w.store.VerifySandbox(t.Context(), info.ID); err != nil || !rep.OK {
		t.Errorf("%+v %v", rep, err)
	}
}
