package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func init() {
	helpers["hold deps"] = holdDeps
	helpers["die in build"] = dieInBuild
	helpers["intents"] = beginIntents
}

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
	if err := r.append(); err != nil {
		t.Fatal(err)
	}
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
	for _, step := range []func() error{
		func() error { return r.SetHandle(json.RawMessage(`{"pid":1}`)) },
		func() error { return r.AddResources(Resource{ResourceCgroup, "/sys/fs/cgroup/x"}) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(r.Intent, read()); diff != "" {
			t.Error(diff)
		}
	}
	if err := r.AddResources(Resource{ResourceDir, "relative"}); err == nil {
		t.Error("a relative resource")
	}

	// A host that dies while it writes leaves half a line, and the line before it counts.
	good := mustRead(t, r.file)
	want := read()
	for _, torn := range []string{"{", `{"schema":"hutch.intent/v1","id":"sb-1"}`, "\x00\x00"} {
		mustWrite(t, r.file, append(slices.Clone(good), torn...))
		if diff := cmp.Diff(want, read()); diff != "" {
			t.Errorf("after %q: %s", torn, diff)
		}
	}
	if err := r.SetHandle(json.RawMessage(`{"pid":2}`)); err != nil { // which takes the piece away first
		t.Fatal(err)
	}
	if diff := cmp.Diff(r.Intent, read()); diff != "" {
		t.Error(diff)
	}
	mustWrite(t, r.file, good[:20]) // it died inside Begin, so nothing was made
	if list, err := s.Intents(); err != nil || len(list) != 0 {
		t.Errorf("%v %v", list, err)
	}
	mustWrite(t, r.file, good)
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
	reused.append()
	rebooted.Host.Boot = "another"
	rebooted.append()
	elsewhere := begin(t, s, "f-elsewhere")
	elsewhere.Host.Namespace = "pid:[1]" // a container that shares the store: its numbers say nothing here
	elsewhere.append()
	mustWrite(t, filepath.Join(s.paths.Intents(), "broken.jsonl"), []byte("{}\n"))
	if err := mine.SetHandle(json.RawMessage(`{}`)); err != nil {
		t.Fatal(err)
	}

	list, err := s.Orphans()
	if err == nil || !strings.Contains(err.Error(), "broken.jsonl") {
		t.Errorf("a broken record was passed over: %v", err)
	}
	var ids []string
	for _, r := range list {
		ids = append(ids, r.ID)
	}
	if diff := cmp.Diff([]string{"c-dead", "b-reused", "a-rebooted"}, ids); diff != "" {
		t.Error(diff)
	}
}

// TestIntentsOfSeveralProcesses: what a dead process kept is taken over by others, and its file goes with its last intent.
func TestIntentsOfSeveralProcesses(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", mkdir(t, shortTemp(t), "r", 0o700))
	s := newStore(t)
	cmd, lines := startHelper(t, s, "intents", "")
	lines.Scan()
	own := begin(t, s, "own")
	if list, err := s.Orphans(); err != nil || len(list) != 0 {
		t.Fatalf("%v %v", list, err)
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
	items, err = collect(t, s, GCOptions{})
	if err != nil || len(items) != 1 || items[0].Kind != GCTemp {
		t.Errorf("%+v %v", items, err)
	}
	if err := kept.SetHandle(nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an intent whose file is gone: %v", err)
	}
	if err := errors.Join(own.Done(), s.Close()); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(s.paths.Intents()); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	later := begin(t, s, "later") // a store works on after Close, and a file with an intent stays
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Intent("later"); err != nil {
		t.Error(err)
	}
	if err := errors.Join(later.Done(), s.Close()); err != nil {
		t.Error(err)
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
	f.Add([]byte(`{"schema":"hutch.intent/v1","id":"a","host":{"pid":1}}` + "\n" + `{"schema":"hutch.intent/v1","id":"a","done":true}` + "\n"))
	f.Add([]byte("{}\n\n{"))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "x.jsonl")
		mustWrite(t, path, data)
		before, bad := readIntents(path)
		if err := appendIntent(path, Intent{Schema: IntentSchema, ID: "fuzz-new"}, false); err != nil {
			t.Fatal(err)
		}
		after, bad2 := readIntents(path)
		if (bad == nil) != (bad2 == nil) || !slices.ContainsFunc(after, func(i Intent) bool { return i.ID == "fuzz-new" }) || len(after) < len(before) {
			t.Errorf("%d intents and %v, then %d and %v", len(before), bad, len(after), bad2)
		}
	})
}

func TestGCFinishesTheJob(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", mkdir(t, shortTemp(t), "r", 0o700))
	s := newStore(t)
	outside := t.TempDir()
	sock := filepath.Join(outside, "sock")
	mkfifo(t, sock)
	dir := mkdir(t, outside, "dir", 0o700)
	inner := mkdir(t, dir, "locked", 0o700)
	mustWrite(t, filepath.Join(inner, "f"), nil)
	os.Chmod(inner, 0)

	withHandle, without, failing := begin(t, s, "with"), begin(t, s, "without"), begin(t, s, "failing")
	withHandle.SetHandle(json.RawMessage(`{"n":1}`))
	failing.SetHandle(json.RawMessage(`{"n":2}`))
	without.AddResources(Resource{ResourceSocket, sock}, Resource{ResourceDir, dir}, Resource{ResourceDir, filepath.Join(outside, "gone")})
	for _, r := range []*IntentRecord{withHandle, without, failing} {
		orphan(t, r)
	}
	alive := begin(t, s, "alive")
	mkdir(t, s.paths.Sandboxes(), "lost.state", 0o700)
	dead := fmt.Sprintf(".x%s999999999.1.%s.00000000", tempMark, Self().namespaceDigits())
	mustWrite(t, filepath.Join(s.paths.Intents(), dead), nil)
	mkdir(t, s.paths.Runs(), dead, 0o700)
	mustWrite(t, tempPath(filepath.Join(s.paths.Data, "mine")), nil)

	var destroyed []string
	destroy := func(_ context.Context, i Intent) error {
		destroyed = append(destroyed, i.ID)
		if i.ID == "failing" {
			return errors.New("no such plugin")
		}
		return nil
	}
	summary := func(items []GCItem, err error) (got []string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range items {
			line := i.Kind + " " + i.Name
			if i.Error != "" {
				line += ": " + i.Error
			}
			got = append(got, line)
		}
		return got
	}
	want := []string{"sandbox with", "sandbox without", "sandbox failing", "temp lost.state", "temp " + dead, "temp " + dead}
	if diff := cmp.Diff(want, summary(collect(t, s, GCOptions{DryRun: true}))); diff != "" {
		t.Errorf("dry run: %s", diff)
	}
	if len(destroyed) > 0 {
		t.Error("a dry run destroyed something")
	}
	want[2] = "sandbox failing: backend fake: no such plugin"
	if diff := cmp.Diff(want, summary(collect(t, s, GCOptions{Destroy: destroy}))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"with", "failing"}, destroyed); diff != "" {
		t.Error(diff)
	}
	if left, _ := os.ReadDir(outside); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if _, err := os.Stat(s.paths.SandboxState("alive")); err != nil {
		t.Error("the state of a live sandbox is gone")
	}
	if diff := cmp.Diff([]string{"sandbox failing: backend fake is needed to destroy it"}, summary(collect(t, s, GCOptions{}))); diff != "" {
		t.Errorf("again: %s", diff)
	}
	alive.Done()
}

// TestGCRefusesWrongResources: a record that names something of another kind than it says removes nothing.
func TestGCRefusesWrongResources(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	mustWrite(t, file, nil)
	link := filepath.Join(dir, "l")
	os.Symlink(dir, link)
	for _, r := range []Resource{{ResourceSocket, file}, {ResourceDir, file}, {ResourceDir, link}, {ResourceDir, "/"}, {ResourceCgroup, dir}, {"unheard-of", file}, {ResourceDir, dir + "/../" + filepath.Base(dir)}} {
		if err := removeResource(t.Context(), r); err == nil {
			t.Errorf("%+v was removed", r)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 2 {
		t.Errorf("left: %v", left)
	}
}

func TestGCOfRuns(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", mkdir(t, shortTemp(t), "r", 0o700))
	for name, c := range map[string]struct {
		o    GCOptions
		left int
	}{
		"nothing asked":    {GCOptions{}, 6},
		"older":            {GCOptions{RunsOlderThan: 150 * time.Minute}, 3},
		"keep":             {GCOptions{KeepRuns: 2}, 2},
		"older but keep":   {GCOptions{RunsOlderThan: 150 * time.Minute, KeepRuns: 5}, 5},
		"running one left": {GCOptions{RunsOlderThan: time.Nanosecond}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
			s := newStore(t)
			s.now = func() time.Time { return now }
			for i := range 6 {
				now = now.Add(time.Hour)
				if r := newRun(t, s); i < 5 {
					finish(t, r)
				}
			}
			now = now.Add(time.Minute)
			if _, err := collect(t, s, c.o); err != nil {
				t.Fatal(err)
			}
			list, err := s.List(Filter{})
			if err != nil || len(list) != c.left {
				t.Errorf("%d left, want %d, %v", len(list), c.left, err)
			}
			for _, rep := range verifyAll(t, s) {
				wantProblems(t, rep, true)
			}
		})
	}
}

func TestGCOfIngested(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", mkdir(t, shortTemp(t), "r", 0o700))
	s := newStore(t)
	now := s.now().UTC()
	ids := []string{now.Add(-72*time.Hour).Format(idLayout) + "-aaaaaa", now.Add(-48*time.Hour).Format(idLayout) + "-bbbbbb", now.Add(-time.Hour).Format(idLayout) + "-cccccc"}
	half := filepath.Join(s.Paths().Ingested(), ".hutch-ingest-1")
	for _, dir := range append([]string{half}, s.Paths().IngestedRun(ids[0]), s.Paths().IngestedRun(ids[1]), s.Paths().IngestedRun(ids[2])) {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(half, now.Add(-2*time.Hour), now.Add(-2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	left := func(o GCOptions) string {
		t.Helper()
		if _, err := s.GC(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(s.Paths().Ingested())
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, e := range entries {
			out = append(out, e.Name()[len(e.Name())-1:])
		}
		return strings.Join(out, "")
	}
	for _, step := range []struct {
		o    GCOptions
		want string
	}{
		{GCOptions{RunsOlderThan: time.Hour, DryRun: true}, "1abc"},
		{GCOptions{}, "abc"},
		{GCOptions{RunsOlderThan: 24 * time.Hour, KeepRuns: 2}, "bc"},
		{GCOptions{RunsOlderThan: 24 * time.Hour}, "c"},
		{GCOptions{KeepRuns: 1}, "c"},
	} {
		if got := left(step.o); got != step.want {
			t.Errorf("%+v leaves %s, want %s", step.o, got, step.want)
		}
	}
}

func TestDepsAreBuiltOnceAndAsAWhole(t *testing.T) {
	s := newStore(t)
	var wg sync.WaitGroup
	built := make(chan string, 8)
	for range 8 {
		cmd := helper(t, s, "deps", "k-1")
		wg.Go(func() {
			out, err := cmd.Output()
			if err != nil {
				t.Error(err)
			}
			built <- string(out)
		})
	}
	wg.Wait()
	close(built)
	n := 0
	for out := range built {
		if out == "true\n" {
			n++
		}
	}
	if n != 1 {
		t.Errorf("built %d times", n)
	}

	boom := errors.New("boom")
	if _, err := s.Deps(t.Context(), "python", "k-2", func(_ context.Context, dir string) error {
		mkdir(t, dir, "d", 0o500)
		return boom
	}); !errors.Is(err, boom) {
		t.Errorf("got %v", err)
	}
	entries, _ := os.ReadDir(filepath.Join(s.paths.Deps(), "python"))
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if diff := cmp.Diff([]string{"k-1", "k-1.lock", "k-2.lock"}, names); diff != "" {
		t.Error(diff)
	}
	e, err := s.Deps(t.Context(), "python", "k-2", func(context.Context, string) error { return nil })
	if err != nil || !e.Built {
		t.Fatalf("after a failure: %+v %v", e, err)
	}
	if err := errors.Join(e.Release(), e.Release()); err != nil {
		t.Error(err)
	}
	for _, bad := range [][2]string{{"", "k"}, {"python", ""}, {"..", "k"}, {"python", "../k"}, {"python", "k.lock"}, {"python", ".k"}, {"p/q", "k"}} {
		if _, err := s.Deps(t.Context(), bad[0], bad[1], nil); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestDepsAreFrozen(t *testing.T) {
	s := newStore(t)
	outside := filepath.Join(t.TempDir(), "outside")
	mustWrite(t, outside, nil)
	e, err := s.Deps(t.Context(), "python", "k", func(_ context.Context, dir string) error {
		mustWrite(t, filepath.Join(dir, "f"), nil)
		mustWrite(t, filepath.Join(dir, "x"), nil)
		os.Chmod(filepath.Join(dir, "x"), 0o4700|fs.ModeSetuid)
		os.Symlink(outside, filepath.Join(dir, "link"))
		mkfifo(t, filepath.Join(dir, "fifo"))
		mustWrite(t, filepath.Join(mkdir(t, dir, "closed", 0o700), "g"), nil)
		return os.Chmod(filepath.Join(dir, "closed"), 0)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Release()
	for name, want := range map[string]fs.FileMode{".": 0o755, "f": 0o444, "x": 0o555, "closed": 0o755, "closed/g": 0o444} {
		if fi, err := os.Lstat(filepath.Join(e.Dir, name)); err != nil || fi.Mode()&(fs.ModePerm|fs.ModeSetuid) != want {
			t.Errorf("%s: %v %v, want %v", name, fi.Mode(), err, want)
		}
	}
	if _, err := os.Lstat(filepath.Join(e.Dir, "fifo")); err == nil {
		t.Error("a FIFO is in the cache")
	}
	if fi, _ := os.Stat(outside); fi.Mode().Perm() != 0o600 {
		t.Error("a mode was changed through a link")
	}
}

// holdDeps uses an entry until it is killed.
func holdDeps(s *Store, key string) error {
	if _, err := s.Deps(context.Background(), "python", key, func(context.Context, string) error { return nil }); err != nil {
		return err
	}
	fmt.Println("held")
	return forever()
}

// dieInBuild is killed while it builds.
func dieInBuild(s *Store, key string) error {
	_, err := s.Deps(context.Background(), "python", key, func(_ context.Context, dir string) error {
		if err := os.WriteFile(filepath.Join(dir, "half"), nil, 0o600); err != nil {
			return err
		}
		fmt.Println("building")
		return forever()
	})
	return err
}

func TestGCOfDeps(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", mkdir(t, shortTemp(t), "r", 0o700))
	s := newStore(t)
	for _, key := range []string{"old", "new"} {
		e, err := s.Deps(t.Context(), "python", key, func(_ context.Context, dir string) error {
			return os.WriteFile(filepath.Join(dir, "f"), make([]byte, 8192), 0o600)
		})
		if err != nil {
			t.Fatal(err)
		}
		e.Release()
	}
	cmd, lines := startHelper(t, s, "hold deps", "held")
	lines.Scan()
	long := time.Now().Add(-48 * time.Hour)
	for _, key := range []string{"old", "held"} {
		if err := os.Chtimes(filepath.Join(s.paths.Deps(), "python", key+".lock"), long, long); err != nil {
			t.Fatal(err)
		}
	}
	gc := func(want ...string) {
		t.Helper()
		items, err := collect(t, s, GCOptions{DepsUnused: 24 * time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, i := range items {
			got = append(got, i.Kind+" "+i.Name+i.Error)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	gc("dependencies python/old")
	kill(t, cmd)
	gc("dependencies python/held")

	cmd, lines = startHelper(t, s, "die in build", "half")
	lines.Scan()
	gc() // it is being built
	kill(t, cmd)
	items, err := collect(t, s, GCOptions{})
	if err != nil || len(items) != 1 || items[0].Kind != GCTemp || items[0].Error != "" {
		t.Errorf("%+v %v", items, err)
	}
	e, err := s.Deps(t.Context(), "python", "half", func(_ context.Context, dir string) error { return nil })
	if err != nil || !e.Built {
		t.Fatalf("%+v %v", e, err)
	}
	e.Release()
}

func TestDepsWaitEndsWithItsContext(t *testing.T) {
	s := newStore(t)
	cmd, lines := startHelper(t, s, "die in build", "k")
	lines.Scan()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := s.Deps(ctx, "python", "k", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	kill(t, cmd)
}

func TestRuntimeDir(t *testing.T) {
	base := mkdir(t, shortTemp(t), "r", 0o700)
	open := mkdir(t, shortTemp(t), "o", 0o777)
	for name, c := range map[string]struct{ xdg, want string }{
		"xdg":                {base, filepath.Join(base, "hutch") + "/"},
		"unset":              {"", fmt.Sprintf("/tmp/hutch-%d-", os.Geteuid())},
		"missing":            {"/nonexistent", fmt.Sprintf("/tmp/hutch-%d-", os.Geteuid())},
		"others may write":   {open, fmt.Sprintf("/tmp/hutch-%d-", os.Geteuid())},
		"too long":           {mkdir(t, t.TempDir(), strings.Repeat("x", 80), 0o700), fmt.Sprintf("/tmp/hutch-%d-", os.Geteuid())},
		"relative":           {"r", fmt.Sprintf("/tmp/hutch-%d-", os.Geteuid())},
		"link to a good one": {linkTo(t, base), fmt.Sprintf("/tmp/hutch-%d-", os.Geteuid())},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("XDG_RUNTIME_DIR", c.xdg)
			t.Setenv("TMPDIR", "/"+strings.Repeat("long/", 40))
			d, err := NewRuntimeDir()
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if !strings.HasPrefix(d.Path(), c.want) {
				t.Errorf("%s, want %s...", d.Path(), c.want)
			}
			if fi, err := os.Lstat(d.Path()); err != nil || fi.Mode() != fs.ModeDir|0o700 {
				t.Errorf("%v %v", fi, err)
			}
			path, err := d.Socket(strings.Repeat("s", socketName))
			if err != nil {
				t.Fatal(err)
			}
			l, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			l.Close()
			for _, bad := range []string{"", "..", "a/b", strings.Repeat("s", 100)} {
				if p, err := d.Socket(bad); err == nil {
					t.Errorf("socket %q: %s", bad, p)
				}
			}
			if sub, err := d.Sub("streams"); err != nil {
				t.Error(err)
			} else if fi, err := os.Lstat(sub); err != nil || fi.Mode().Perm() != 0o700 {
				t.Errorf("%v %v", fi, err)
			}
			if err := errors.Join(d.Close(), d.Close()); err != nil {
				t.Error(err)
			}
			if _, err := os.Lstat(d.Path()); err == nil {
				t.Error("it is still there")
			}
		})
	}
}

func linkTo(t *testing.T, dir string) string {
	t.Helper()
	link := filepath.Join(shortTemp(t), "l")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	return link
}

func TestStaleRuntimeDirs(t *testing.T) {
	base := mkdir(t, shortTemp(t), "r", 0o700)
	t.Setenv("XDG_RUNTIME_DIR", base)
	s := newStore(t)
	mine, err := NewRuntimeDir()
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Close()
	stale := mkdir(t, filepath.Join(base, "hutch"), "abcdef", 0o700)
	l, err := net.Listen("unix", filepath.Join(stale, "sock"))
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	foreign := mkdir(t, filepath.Join(base, "hutch"), "something-else", 0o700)
	items, err := collect(t, s, GCOptions{})
	if err != nil || len(items) != 1 || items[0].Path != stale || items[0].Error != "" {
		t.Errorf("%+v %v", items, err)
	}
	for path, there := range map[string]bool{stale: false, mine.Path(): true, foreign: true} {
		if _, err := os.Lstat(path); (err == nil) != there {
			t.Errorf("%s: %v", path, err)
		}
	}
	// A directory that gc takes between its making and its locking is not handed out.
	taken := mkdir(t, filepath.Join(base, "hutch"), "zzzzzz", 0o700)
	f, _ := openOwnDir(taken)
	defer f.Close()
	if err := tryLock(f, unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if _, err := claimRuntimeDir(taken); !errors.Is(err, fs.ErrExist) {
		t.Errorf("%v", err)
	}
}

// collect is [Store.GC] without what other tests on this machine leave in /tmp meanwhile, where it looks too.
func collect(t *testing.T, s *Store, o GCOptions) ([]GCItem, error) {
	t.Helper()
	items, err := s.GC(t.Context(), o)
	return slices.DeleteFunc(items, func(i GCItem) bool { return i.Kind == GCRuntimeDir && filepath.Dir(i.Path) == "/tmp" }), err
}

// A gc that looks while a directory is made may take it for one that is left; whoever makes it then makes another one.
func TestRuntimeDirsAreMadeDuringGC(t *testing.T) {
	base, err := os.MkdirTemp("/tmp", "h-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(base)
	t.Setenv("XDG_RUNTIME_DIR", base)
	done, collected := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(collected)
		for {
			select {
			case <-done:
				return
			default:
				_ = staleRuntimeDirs(func(path string) error {
					if !strings.HasPrefix(path, base) {
						return nil // in /tmp, of others
					}
					return os.RemoveAll(path)
				})
			}
		}
	}()
	for range 300 {
		d, err := NewRuntimeDir()
		if err != nil {
			t.Error(err)
			break
		}
		if _, err := os.Stat(d.Path()); err != nil {
			t.Errorf("it was taken away: %v", err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	close(done)
	<-collected
}
