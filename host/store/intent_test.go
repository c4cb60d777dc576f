package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func begin(t *testing.T, s *Store, id string) *IntentRecord {
	t.Helper()
	r, err := s.Begin(Intent{ID: id, Run: "261121-034512-c3k7q2", Backend: "fake", Binary: "/x/hutch-backend-fake"})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// orphan makes an intent look like one whose host died.
func orphan(t *testing.T, r *IntentRecord) {
	t.Helper()
	r.Host.PID, r.Host.Start = 1<<30, 1
	rewrite(t, r)
}

// rewrite replaces an intent by what it is now.
func rewrite(t *testing.T, r *IntentRecord) {
	t.Helper()
	line, err := r.line()
	if err != nil {
		t.Fatal(err)
	}
	mustWrite(t, r.path(), line)
}

func TestIntentIsOnDiskAtEveryStep(t *testing.T) {
	s := newStore(t)
	r := begin(t, s, "sb-1")
	read := func() Intent {
		t.Helper()
		got, err := s.Intent("sb-1")
		if err != nil {
			t.Fatal(err)
		}
		return got.Intent
	}
	if diff := cmp.Diff(r.Intent, read()); diff != "" || r.Schema != IntentSchema || r.Host != Self() || r.Created.IsZero() {
		t.Errorf("%+v\n%s", r.Intent, diff)
	}
	if fi, err := os.Stat(s.paths.SandboxState("sb-1")); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("state directory: %v %v", fi, err)
	}
	if _, err := s.Begin(Intent{ID: "sb-1"}); err == nil {
		t.Error("a second sandbox of the same id")
	}
	if err := r.SetHandle(json.RawMessage(`{"pid":1}`)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r.Intent, read()); diff != "" {
		t.Error(diff)
	}

	// A host that dies while it writes leaves half a line, and the line before it counts.
	good := mustRead(t, r.path())
	want := read()
	for _, torn := range []string{"{", `{"schema":"hutch.intent/v1","id":"sb-1"}`, "\x00\x00"} {
		mustWrite(t, r.path(), append(slices.Clone(good), torn...))
		if diff := cmp.Diff(want, read()); diff != "" {
			t.Errorf("after %q: %s", torn, diff)
		}
	}
	mustWrite(t, r.path(), nil) // a power cut took the content: what a reboot leaves of it is its directory
	if diff := cmp.Diff(Intent{ID: "sb-1"}, read()); diff != "" {
		t.Error(diff)
	}
	mustWrite(t, r.path(), good)
	if err := errors.Join(r.Done(), r.Done()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Intent("sb-1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if again := begin(t, s, "sb-1"); again.Done() != nil {
		t.Error("its id cannot be used again")
	}
	if left, _ := os.ReadDir(s.paths.Sandboxes()); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	for _, id := range []string{"", "../x", "A", strings.Repeat("a", 65)} {
		if _, err := s.Begin(Intent{ID: id}); err == nil {
			t.Errorf("id %q", id)
		}
	}
}

func TestOrphans(t *testing.T) {
	now := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	s := newStore(t)
	s.now = func() time.Time { now = now.Add(time.Second); return now }
	mine, dead, reused, rebooted := begin(t, s, "e-mine"), begin(t, s, "c-dead"), begin(t, s, "b-reused"), begin(t, s, "a-rebooted")
	orphan(t, dead)
	reused.Host.Start++ // its number went to another process, this one
	rewrite(t, reused)
	rebooted.Host.Boot = "another"
	rewrite(t, rebooted)
	elsewhere := begin(t, s, "f-elsewhere")
	elsewhere.Host.Namespace = "pid:[1]" // a container that shares the store: its numbers say nothing here
	rewrite(t, elsewhere)
	mustWrite(t, filepath.Join(s.paths.Intents(), "broken.jsonl"), []byte("{}\n"))
	if err := mine.SetHandle(json.RawMessage(`{}`)); err != nil {
		t.Fatal(err)
	}

	list, err := s.Intents()
	if err == nil || !strings.Contains(err.Error(), "broken.jsonl") {
		t.Errorf("a broken record was passed over: %v", err)
	}
	var ids []string
	for _, r := range list {
		if !r.Host.Alive() {
			ids = append(ids, r.ID)
		}
	}
	if diff := cmp.Diff([]string{"c-dead", "b-reused", "a-rebooted"}, ids); diff != "" {
		t.Error(diff)
	}
}

// TestIntentsOfSeveralProcesses: what a dead process kept is taken over by others.
func TestIntentsOfSeveralProcesses(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", mkdir(t, shortTemp(t), "r", 0o700))
	s := newStore(t)
	cmd, lines := startHelper(t, s, "intents", "")
	lines.Scan()
	own := begin(t, s, "own")
	if items, err := collect(t, s, GCOptions{}); err != nil || len(items) != 0 {
		t.Fatalf("%v %v", items, err)
	}
	kill(t, cmd)
	items, err := collect(t, s, GCOptions{}) // without a backend, what has a handle must wait
	if err != nil || len(items) != 2 || items[0].Name != "kept" || items[0].Error == "" || items[1].Name != "lost" || items[1].Error != "" {
		t.Fatalf("%+v %v", items, err)
	}
	kept, err := s.Intent("kept")
	if err != nil {
		t.Fatal(err)
	}
	if err := kept.SetHandle(json.RawMessage(`"new"`)); err != nil {
		t.Fatal(err)
	}
	if kept, err = s.Intent("kept"); err != nil || string(kept.Handle) != `"new"` {
		t.Fatalf("%+v %v", kept, err)
	}
	if err := kept.Done(); err != nil {
		t.Fatal(err)
	}
	if err := kept.SetHandle(nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an intent whose file is gone: %v", err)
	}
	if err := own.Done(); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(s.paths.Intents()); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// beginIntents is a host that dies with one sandbox that is there and one that it has not begun to make.
func beginIntents(s *Store, _ string) error {
	for _, id := range []string{"kept", "lost"} {
		r, err := s.Begin(Intent{ID: id, Backend: "fake"})
		if err == nil && id == "kept" {
			err = r.SetHandle(json.RawMessage(`"old"`))
		}
		if err != nil {
			return err
		}
	}
	fmt.Println("ready")
	return forever()
}

func FuzzIntents(f *testing.F) {
	f.Add([]byte(`{"schema":"hutch.intent/v1","id":"fuzz","host":{"pid":1}}` + "\n"))
	f.Add([]byte("{}\n\n{"))
	f.Fuzz(func(t *testing.T, data []byte) {
		before, bad := decodeIntent("fuzz", data)
		if bad == nil && before.ID != "fuzz" {
			t.Errorf("the intent of %q", before.ID)
		}
		whole := data[:bytes.LastIndexByte(data, '\n')+1]
		if after, err := decodeIntent("fuzz", append(slices.Clone(whole), `{"schema":`...)); (err == nil) != (bad == nil) || !cmp.Equal(before, after) {
			t.Errorf("%+v %v, and with half a line at the end %+v %v", before, bad, after, err)
		}
	})
}
