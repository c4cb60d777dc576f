package sandbox

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/sdk"
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
	if l.Started() != nil {
		t.Error("the backend was started to look at files of this host")
	}
	if l.Base() != w.store.Paths().SandboxBase(info.ID) || l.Ready().Workspace == "" || l.Record.Name != "web" {
		t.Errorf("base %s, ready %+v, record %+v", l.Base(), l.Ready(), l.Record)
	}
	if err := l.Put(t.Context(), l.Ready().Workspace+"/b.txt", sdk.FormatFile, strings.NewReader("secret words\n")); err != nil {
		t.Fatal(err)
	}
	if l.Started() == nil {
		t.Error("a change was made without the backend")
	}
	if err := errors.Join(l.Remove(t.Context(), l.Ready().Workspace+"/a.txt", false), l.Changed(store.EventSandboxDelete, "a.txt")); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(w.dir + "/b.txt"); err != nil || string(b) != "secret words\n" {
		t.Errorf("the project has %q, %v", b, err)
	}
	var busy *BusyError
	if err := w.Remove(t.Context(), "web", false); !errors.As(err, &busy) {
		t.Errorf("removed while somebody looked: %v", err)
	}
	if err := errors.Join(l.Close(), l.Close()); err != nil {
		t.Errorf("close, and close once more: %v", err)
	}
	var events []string
	for _, e := range w.events(info.ID) {
		if e.Type == store.EventSandboxRecord {
			continue
		}
		events = append(events, string(e.Type)+" "+string(e.Data))
	}
	if diff := cmp.Diff([]string{`sandbox.delete "a.txt"`}, events); diff != "" {
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
	if l.Started() == nil {
		t.Fatal("the backend was not started")
	}
	if err := errors.Join(l.Changed(store.EventSandboxWrite, "a.txt"), l.Close()); err != nil {
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

// TestWhatTheChainSays copies files in and out, and reads what the sandbox's chain says about it.
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
	for _, err := range []error{
		s.CopyIn(t.Context(), from+"/new", "/workspace/"), s.CopyIn(t.Context(), from, "/workspace/tree"), s.CopyOut(t.Context(), "/workspace/new", from+"/out", Caps{}, nil),
		s.Close(), w.Reset(t.Context(), "web", false, false),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	type line struct {
		Type              store.EventType
		Way, Path, SHA256 string
		Tar               bool
		Size              int
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
		if l.Tar {
			if len(l.SHA256) != 64 || l.Size == 0 {
				t.Errorf("%+v has no size or no hash", l)
			}
			l.SHA256, l.Size = "", 0
		}
		l.Path = strings.Replace(l.Path, workspace, "/workspace", 1)
		got = append(got, l)
	}
	in := line{Type: store.EventSandboxCopy, Way: "in", Path: "/workspace/new", Size: 4, SHA256: "7aa7a5359173d05b63cfd682e3c38487f3cb4f7f1d60659fe59fab1505977d4c"}
	want := []line{
		in, {Type: store.EventSandboxCopy, Way: "in", Path: "/workspace/tree", Tar: true}, {Type: store.EventSandboxCopy, Way: "out", Path: "/workspace/new"},
		{Type: store.EventSandboxReset},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if rep, err := w.store.VerifySandbox(t.Context(), info.ID); err != nil || !rep.OK {
		t.Errorf("%+v %v", rep, err)
	}
}
