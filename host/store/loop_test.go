package store

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestLoopKnowsTheHeadsOfItsRuns: a run of a loop that was replaced together with its entries in the audit chain shows
// in the loop; one that hutch removed does not.
func TestLoopKnowsTheHeadsOfItsRuns(t *testing.T) {
	s := newStore(t)
	l := fullLoop(t, s)
	parts, err := s.Parts(l.ID())
	if err != nil || len(parts) != 2 || parts[0].ID > parts[1].ID {
		t.Fatalf("%+v %v", parts, err)
	}
	for id, rep := range verifyAll(t, s) {
		if !rep.OK || len(rep.Findings) > 0 {
			t.Errorf("%s: %+v", id, rep)
		}
	}
	tell := func(run, head string) *Run {
		t.Helper()
		l, err := s.CreateRun(NewRun{Kind: KindGenerate, Name: "lies", Definition: map[string]any{}})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Event(EventAttempt, map[string]string{"run": run, "head": head}); err != nil {
			t.Fatal(err)
		}
		finish(t, l)
		return l
	}
	open := newRun(t, s)
	for name, liar := range map[string]*Run{
		"another head":    tell(parts[0].ID, verify(t, s, parts[1].ID).Head),
		"never ended":     tell(open.ID(), verify(t, s, parts[1].ID).Head),
		"was never there": tell("261121-034512-c3k7q2", ""),
	} {
		t.Log(name)
		wantProblems(t, verify(t, s, liar.ID()), false, ProblemHeadMismatch)
	}
	if err := s.Remove(parts[0].ID); err != nil {
		t.Fatal(err)
	}
	wantProblems(t, verify(t, s, l.ID()), true)
}

// TestVerifyTree: what is wrong with a run of a loop is reported with the loop.
func TestVerifyTree(t *testing.T) {
	tree := func(s *Store, id string) map[string]*Report {
		t.Helper()
		got := map[string]*Report{}
		if err := s.VerifyTree(t.Context(), id, func(r *Report) error {
			if got[r.Run] != nil {
				t.Errorf("%s is reported twice", r.Run)
			}
			got[r.Run] = r
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return got
	}
	s := newStore(t)
	fullLoop(t, s) // another one
	l := fullLoop(t, s)
	parts, err := s.Parts(l.ID())
	if err != nil || len(parts) != 2 {
		t.Fatalf("%+v %v", parts, err)
	}
	got := tree(s, l.ID())
	if len(got) != 3 {
		t.Errorf("%d reports: %v", len(got), got)
	}
	for _, id := range []string{l.ID(), parts[0].ID, parts[1].ID} {
		wantProblems(t, got[id], true)
	}
	mustWrite(t, filepath.Join(s.paths.Run(parts[0].ID), eventsFile), nil)
	if err := os.RemoveAll(s.paths.Run(parts[1].ID)); err != nil {
		t.Fatal(err)
	}
	got = tree(s, l.ID())
	if r := got[parts[0].ID]; r == nil || r.OK {
		t.Errorf("of a chain that was cut: %+v", r)
	}
	wantProblems(t, got[parts[1].ID], false, ProblemRunMissing)
	if err := s.Remove(parts[0].ID); err != nil {
		t.Fatal(err)
	}
	if got = tree(s, l.ID()); got[parts[0].ID] != nil {
		t.Errorf("of a run that hutch removed: %+v", got[parts[0].ID])
	}
}

// TestRemovingALoopRemovesItsRuns, and nothing of it while one of them goes on.
func TestRemovingALoopRemovesItsRuns(t *testing.T) {
	s := newStore(t)
	other := fullLoop(t, s)
	l := fullLoop(t, s)
	repeat, err := s.CreateRun(NewRun{Name: "replay", Parent: newFinished(t, s), Definition: map[string]any{}})
	if err != nil {
		t.Fatal(err)
	}
	open, err := s.CreateRun(NewRun{Name: "part", Parent: l.ID(), Definition: map[string]any{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(l.ID()); !errors.Is(err, ErrRunning) {
		t.Fatal(err)
	}
	if parts, err := s.Parts(l.ID()); err != nil || len(parts) != 3 {
		t.Fatalf("%+v %v", parts, err)
	}
	finish(t, open)
	if err := s.Remove(l.ID()); err != nil {
		t.Fatal(err)
	}
	if parts, err := s.Parts(l.ID()); err != nil || len(parts) != 0 {
		t.Errorf("%+v %v", parts, err)
	}
	if parts, err := s.Parts(other.ID()); err != nil || len(parts) != 2 {
		t.Errorf("%+v %v", parts, err)
	}
	finish(t, repeat)
	if err := s.Remove(repeat.Info().Parent); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Load(repeat.ID()); err != nil {
		t.Errorf("the repetition of a run went with it: %v", err)
	}
	for id, rep := range verifyAll(t, s) {
		if !rep.OK {
			t.Errorf("%s: %+v", id, rep)
		}
	}
}

func newFinished(t *testing.T, s *Store) string {
	t.Helper()
	r := newRun(t, s)
	finish(t, r)
	return r.ID()
}

// TestGCOfLoops: the runs of a loop go with it and count as one with it.
func TestGCOfLoops(t *testing.T) {
	s := newStore(t)
	now := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	s.now = func() time.Time { now = now.Add(time.Second); return now }
	first := newFinished(t, s)
	old := fullLoop(t, s)
	middle := newFinished(t, s)
	young := fullLoop(t, s)
	left := func(o GCOptions) []string {
		t.Helper()
		if _, err := collect(t, s, o); err != nil {
			t.Fatal(err)
		}
		list, err := s.List(Filter{})
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, i := range list {
			if i.Parent == "" {
				ids = append(ids, i.ID)
			}
		}
		slices.Reverse(ids)
		return ids
	}
	if diff := cmp.Diff([]string{old.ID(), middle, young.ID()}, left(GCOptions{KeepRuns: 3})); diff != "" {
		t.Error(diff)
	}
	if _, err := s.Load(first); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{middle, young.ID()}, left(GCOptions{KeepRuns: 2})); diff != "" {
		t.Error(diff)
	}
	if list, err := s.List(Filter{}); err != nil || len(list) != 4 {
		t.Errorf("%d runs are left, want the loop with its two and another one: %v", len(list), err)
	}
}

// TestContinueRun: a loop whose host died is gone on with in its own record, whatever the writer left half done.
func TestContinueRun(t *testing.T) {
	s := newStore(t)
	l, err := s.CreateRun(NewRun{Kind: KindCycle, Name: "work", Definition: map[string]any{}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.ContinueRun(l.ID()); !errors.Is(err, ErrRunning) {
		t.Fatalf("while its host lives: %v", err)
	}
	ref, err := l.WriteCall("0001.request.json", []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Event(EventModelCall, map[string]int{"n": 1}, ref); err != nil {
		t.Fatal(err)
	}
	if _, err := l.WriteCall("0002.request.json", []byte("{}")); err != nil { // of which no event speaks
		t.Fatal(err)
	}
	mustWrite(t, filepath.Join(l.Dir(), "calls", ".0002.answer.json.tmp.1.1.1.00000000"), []byte("{"))
	l.Close()
	abandon(t, s, l.ID())
	f, err := os.OpenFile(filepath.Join(l.Dir(), eventsFile), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString(`{"torn`)
	f.Close()
	next, err := s.ContinueRun(l.ID())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.ContinueRun(l.ID()); !errors.Is(err, ErrRunning) {
		t.Errorf("a second one: %v", err)
	}
	if rec, err := s.Load(l.ID()); err != nil || rec.State != StateRunning || rec.Kind != KindCycle {
		t.Errorf("%+v %v", rec, err)
	}
	if err := next.SetSandbox("box"); err != nil {
		t.Fatal(err)
	}
	if ref, err = next.WriteCall("0002.request.json", []byte("{ }")); err != nil {
		t.Fatal(err)
	}
	if err := next.Event(EventModelCall, map[string]int{"n": 2}, ref); err != nil {
		t.Fatal(err)
	}
	finish(t, next)
	rep := verify(t, s, l.ID())
	wantProblems(t, rep, true, ProblemRepaired)
	if _, err := s.ContinueRun(l.ID()); err == nil {
		t.Error("a finished loop was gone on with")
	}
	run := newRun(t, s)
	run.Close()
	abandon(t, s, run.ID())
	if _, err := s.ContinueRun(run.ID()); err == nil {
		t.Error("a run was gone on with")
	}
}
