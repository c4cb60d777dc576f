package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func init() {
	helpers["hold deps"] = holdDeps
	helpers["die in build"] = dieInBuild
	helpers["intents"] = beginIntents
}

func TestGCFinishesTheJob(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", mkdir(t, shortTemp(t), "r", 0o700))
	s := newStore(t)
	withHandle, without, failing := begin(t, s, "with"), begin(t, s, "without"), begin(t, s, "failing")
	withHandle.SetHandle(json.RawMessage(`{"n":1}`))
	failing.SetHandle(json.RawMessage(`{"n":2}`))
	inner := mkdir(t, s.paths.SandboxState("without"), "locked", 0o700)
	mustWrite(t, filepath.Join(inner, "f"), nil)
	os.Chmod(inner, 0)
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
	if _, err := os.Lstat(s.paths.SandboxState("without")); err == nil {
		t.Error("the state of a dead sandbox is there")
	}
	if _, err := os.Stat(s.paths.SandboxState("alive")); err != nil {
		t.Error("the state of a live sandbox is gone")
	}
	if diff := cmp.Diff([]string{"sandbox failing: backend fake is needed to destroy it"}, summary(collect(t, s, GCOptions{}))); diff != "" {
		t.Errorf("again: %s", diff)
	}
	alive.Done()
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

// collect is [Store.GC] without what other tests on this machine leave in /tmp meanwhile, where it looks too.
func collect(t *testing.T, s *Store, o GCOptions) ([]GCItem, error) {
	t.Helper()
	items, err := s.GC(t.Context(), o)
	return slices.DeleteFunc(items, func(i GCItem) bool { return i.Kind == GCRuntimeDir && filepath.Dir(i.Path) == "/tmp" }), err
}

// TestL13TemporaryDirectories: what a killed hutch left for a review or a bundle goes, and what a living one works with
// stays.
func TestL13TemporaryDirectories(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", mkdir(t, shortTemp(t), "r", 0o700))
	t.Setenv("TMPDIR", mkdir(t, shortTemp(t), "t", 0o700))
	s := newStore(t)
	mine, err := MkdirTemp("bundle")
	if err != nil {
		t.Fatal(err)
	}
	dead := mkdir(t, os.TempDir(), fmt.Sprintf("hutch-review%s999999999.1.%s.00000000", tempMark, Self().namespaceDigits()), 0o700)
	mkdir(t, os.TempDir(), "hutch-of-somebody", 0o700)
	items := func() []GCItem {
		l, err := collect(t, s, GCOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}()
	if len(items) != 1 || items[0].Path != dead {
		t.Errorf("gc removed %+v", items)
	}
	if _, err := os.Stat(mine); err != nil {
		t.Error(err)
	}
}
