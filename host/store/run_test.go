package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestRunFromBeginToEnd(t *testing.T) {
	s := newStore(t)
	parent := newRun(t, s)
	finish(t, parent)
	r, err := s.CreateRun(NewRun{Name: "report", File: "/p/hutch.hcl", Parent: parent.ID(), Definition: map[string]string{"a": "<b>"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.SetBackend("bwrap"); err != nil {
		t.Fatal(err)
	}
	ref, err := r.WriteCode("pkg/deep/main.py", 0o751, strings.NewReader("print(1)\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := FileRef{Path: "code/pkg/deep/main.py", Size: 9, SHA256: sumHex([]byte("print(1)\n")), Mode: "0751"}
	if diff := cmp.Diff(want, ref); diff != "" {
		t.Error(diff)
	}
	if err := r.Event(EventCode, nil, ref); err != nil {
		t.Fatal(err)
	}
	log, err := r.OpenLog(Stdout, 100)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(log, "hello\n")
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	logRef, err := r.Ref(Stdout.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	code := 3
	result := testResult{Schema: "hutch.<result>/v1"}
	ref2, err := r.Finish(End{Cause: "exited", ExitCode: &code, Result: result, Files: []FileRef{logRef}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Event(EventPlan, nil); err == nil {
		t.Error("an event after the end")
	}

	rec, err := s.Load(r.ID())
	if err != nil {
		t.Fatal(err)
	}
	wantInfo := Info{Schema: RunSchema, ID: r.ID(), Name: "report", File: "/p/hutch.hcl", Backend: "bwrap", Parent: parent.ID(),
		State: StateFinished, Cause: "exited", ExitCode: &code, Host: Self()}
	if diff := cmp.Diff(wantInfo, rec.Info, cmpopts.IgnoreFields(Info{}, "Started", "Ended")); diff != "" {
		t.Error(diff)
	}
	if rec.Ended == nil || rec.Ended.Before(rec.Started) {
		t.Errorf("from %v to %v", rec.Started, rec.Ended)
	}
	events, err := rec.Events()
	if err != nil {
		t.Fatal(err)
	}
	var types []EventType
	for i, e := range events {
		types = append(types, e.Type)
		if e.Seq != uint64(i+1) || e.Run != r.ID() {
			t.Errorf("event %d: %+v", i, e)
		}
	}
	if diff := cmp.Diff([]EventType{EventBegin, EventInfo, EventCode, EventOutputs, EventEnd}, types); diff != "" {
		t.Error(diff)
	}
	if events[0].Parent != parent.ID() {
		t.Errorf("parent %q", events[0].Parent)
	}
	if def, err := rec.Definition(); err != nil || !strings.Contains(string(def), `"<b>"`) {
		t.Errorf("definition %s %v", def, err)
	}
	rep := verify(t, s, r.ID())
	wantProblems(t, rep, true)
	if rep.Files != 2 || rep.Events != 5 || rep.Head != events[4].Hash {
		t.Errorf("%+v", rep)
	}
	if want := (ChainRef{eventsFile, 5, rep.Head}); ref2 != want {
		t.Errorf("%+v, want %+v", ref2, want)
	}
	wantResult := `{"schema":"hutch.<result>/v1","events":{"path":"events.jsonl","events":5,"head":"` + rep.Head + `"}}`
	if got, err := rec.Result(); err != nil || string(got) != wantResult {
		t.Errorf("result %s %v, want %s", got, err, wantResult)
	}
	checkModes(t, s, r)
}

// checkModes: nobody else gets in, and inside code/ the modes are those that the sandbox shall see.
func checkModes(t *testing.T, s *Store, r *Run) {
	t.Helper()
	for path, want := range map[string]fs.FileMode{
		s.paths.Data: 0o700, s.paths.Runs(): 0o700, r.Dir(): 0o700,
		s.paths.Audit():                                      0o600,
		filepath.Join(r.Dir(), eventsFile):                   0o400, // finished
		filepath.Join(r.Dir(), "stdout.log"):                 0o600,
		r.CodeDir():                                          0o755,
		filepath.Join(r.CodeDir(), "pkg"):                    0o755,
		filepath.Join(r.CodeDir(), "pkg", "deep", "main.py"): 0o751,
	} {
		if fi, err := os.Lstat(path); err != nil || fi.Mode().Perm() != want {
			t.Errorf("%s: %v %v, want %v", path, fi.Mode(), err, want)
		}
	}
	if names, _ := filepath.Glob(filepath.Join(r.Dir(), ".*")); len(names) > 0 {
		t.Errorf("left behind: %v", names)
	}
}

// TestCreateRunWithAnIDThatExists refuses, and the run that has the id goes on as if nothing had been.
func TestCreateRunWithAnIDThatExists(t *testing.T) {
	s := newStore(t)
	r := newRun(t, s)
	before := verify(t, s, r.ID()).Events
	if _, err := s.CreateRun(NewRun{ID: r.ID(), Name: "other", Definition: 1}); err == nil {
		t.Fatal("two runs have one id")
	}
	if rep := verify(t, s, r.ID()); rep.Events != before || s.readInfo(r.ID()).Name != "test" {
		t.Errorf("the run is %+v", rep)
	}
	finish(t, r)
	wantProblems(t, verify(t, s, r.ID()), true)
	if dirs, err := os.ReadDir(s.paths.Runs()); err != nil || len(dirs) != 1 {
		t.Errorf("beside the run: %v, %v", dirs, err)
	}
}

func TestWriteCodeRefuses(t *testing.T) {
	r := newRun(t, newStore(t))
	if _, err := r.WriteCode("a.py", 0o644, strings.NewReader("")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", ".", "..", "../x", "/x", "a/../x", "a//b", "a\x00b", "a\nb", "a.py", "a.py/b", strings.Repeat("a", 5000)} {
		if _, err := r.WriteCode(name, 0o644, strings.NewReader("evil")); err == nil {
			t.Errorf("%.50q was written", name)
		}
	}
	if err := os.Symlink("/tmp", filepath.Join(r.CodeDir(), "out")); err != nil {
		t.Fatal(err)
	}
	if _, err := r.WriteCode("out/x", 0o644, strings.NewReader("evil")); err == nil {
		t.Error("written through a link that leads out")
	}
}

func TestWriteCodeConcurrently(t *testing.T) {
	umask := syscall.Umask(0o077) // must not show in the modes
	defer syscall.Umask(umask)
	r := newRun(t, newStore(t))
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			if _, err := r.WriteCode(fmt.Sprintf("d%d/e/f%d", i%4, i), 0o644, strings.NewReader("x")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i := range 4 {
		if fi, err := os.Stat(filepath.Join(r.CodeDir(), fmt.Sprintf("d%d", i), "e")); err != nil || fi.Mode().Perm() != 0o755 {
			t.Errorf("d%d/e: %v %v", i, fi, err)
		}
	}
}

func TestIDsSortByTimeAndIncrease(t *testing.T) {
	now := time.Date(2026, 11, 21, 3, 45, 12, 999_999_999, time.UTC)
	var src idSource
	var ids []string
	for i := range 5000 {
		if i == 2500 {
			now = now.Add(-time.Hour) // a clock that is set back
		}
		ids = append(ids, src.next(now))
	}
	for i, id := range ids {
		if !isRunID(id) {
			t.Fatalf("%q", id)
		}
		if i > 0 && id <= ids[i-1] {
			t.Fatalf("%s after %s", id, ids[i-1])
		}
	}
	if !strings.HasPrefix(ids[0], "261121-034512-") {
		t.Errorf("%s", ids[0])
	}
	var a, b idSource
	if x, y := a.next(now), b.next(now.Add(2*time.Millisecond)); x >= y {
		t.Errorf("%s is not before %s of another process", x, y)
	}
}

func TestResolve(t *testing.T) {
	s := newStore(t)
	if _, err := s.Resolve("latest"); !errors.Is(err, ErrNotFound) {
		t.Errorf("no runs: %v", err)
	}
	for _, id := range []string{"261121-034512-c3k7q2", "261121-034512-c3k800", "261121-034600-a00001", "251121-034600-a10001"} {
		r, err := s.CreateRun(NewRun{ID: id, Name: id})
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
	}
	mkdir(t, s.paths.Runs(), "not-a-run", 0o700)
	for ref, want := range map[string]string{
		"latest": "261121-034600-a00001", "-": "261121-034600-a00001",
		"261121-034512-c3k7q2": "261121-034512-c3k7q2", "261121-0346": "261121-034600-a00001",
		"25": "251121-034600-a10001", "c3k7": "261121-034512-c3k7q2", "C3K7Q2": "261121-034512-c3k7q2",
		"aLooo1": "251121-034600-a10001", "c3k8": "261121-034512-c3k800",
	} {
		if got, err := s.Resolve(ref); err != nil || got != want {
			t.Errorf("%s: got %s %v, want %s", ref, got, err, want)
		}
	}
	for ref, want := range map[string]error{
		"2": ErrAmbiguous, "c3k": ErrAmbiguous, "a": ErrAmbiguous, "261121-034512": ErrAmbiguous,
		"": ErrNotFound, "zzz": ErrNotFound, "not-a-run": ErrNotFound, "../runs": ErrNotFound, "261121-034512-c3k7q2x": ErrNotFound,
	} {
		if got, err := s.Resolve(ref); !errors.Is(err, want) {
			t.Errorf("%q: got %s %v, want %v", ref, got, err, want)
		}
	}
	if _, err := s.CreateRun(NewRun{ID: "../../x"}); err == nil {
		t.Error("a run id with a path in it")
	}
	if _, err := s.CreateRun(NewRun{ID: "261121-034600-a00001"}); err == nil {
		t.Error("a run id that is taken")
	}
}

func TestListAndRemove(t *testing.T) {
	now := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	s := newStore(t)
	s.now = func() time.Time { return now }
	var ids []string
	for i := range 6 {
		now = now.Add(time.Hour)
		r, err := s.CreateRun(NewRun{Name: fmt.Sprintf("n%d", i%2), Backend: "b"})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, r.ID())
		switch {
		case i < 3:
			finish(t, r)
		case i == 3:
			r.Close()
			abandon(t, s, r.ID())
		case i == 4:
			r.Close()
			mustWrite(t, filepath.Join(r.Dir(), eventsFile), []byte("{\n"))
		default:
			t.Cleanup(func() { r.Close() })
		}
	}
	slices.Reverse(ids)
	list := func(f Filter) (got []string) {
		infos, err := s.List(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range infos {
			got = append(got, i.ID)
		}
		return got
	}
	for name, c := range map[string]struct {
		f    Filter
		want []string
	}{
		"all":         {Filter{}, ids},
		"limit":       {Filter{Limit: 2}, ids[:2]},
		"running":     {Filter{States: []State{StateRunning}}, ids[:1]},
		"damaged":     {Filter{States: []State{StateDamaged}}, ids[1:2]},
		"interrupted": {Filter{States: []State{StateInterrupted}}, ids[2:3]},
		"finished":    {Filter{States: []State{StateFinished}}, ids[3:]},
		"two states":  {Filter{States: []State{StateFinished, StateRunning}, Limit: 2}, []string{ids[0], ids[3]}},
		"name":        {Filter{Name: "n0", States: []State{StateFinished}}, []string{ids[3], ids[5]}},
		"since":       {Filter{Since: now.Add(-time.Hour)}, ids[:2]},
	} {
		if diff := cmp.Diff(c.want, list(c.f)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}

	if err := s.Remove(ids[0]); !errors.Is(err, ErrRunning) {
		t.Errorf("a running run: %v", err)
	}
	for _, id := range []string{ids[1], ids[2], ids[3]} {
		if err := s.Remove(id); err != nil {
			t.Error(err)
		}
		if err := s.Remove(id); !errors.Is(err, ErrNotFound) {
			t.Errorf("twice: %v", err)
		}
	}
	if diff := cmp.Diff([]string{ids[0], ids[4], ids[5]}, list(Filter{})); diff != "" {
		t.Error(diff)
	}
	for _, rep := range verifyAll(t, s) { // what hutch removed is not missing
		wantProblems(t, rep, true)
	}
	if names, _ := os.ReadDir(s.paths.Runs()); len(names) != 3 {
		t.Errorf("left behind: %v", names)
	}
}

// TestDataCannotForgeAnEvent is OUT-03: whatever a run puts into data and names, one event stays one line.
func TestDataCannotForgeAnEvent(t *testing.T) {
	s := newStore(t)
	r := newRun(t, s)
	forged := "\n{\"schema\":\"hutch.event/v1\",\"seq\":3,\"type\":\"run.end\"}\n2026-11-21 event=approved\r\n\x00\x1b[2J\u2028\u2029\xff"
	if err := r.Event("note", map[string]string{forged: forged}, FileRef{Path: "definition.json" + forged}); err != nil {
		t.Fatal(err)
	}
	if err := r.Event(EventType(forged), nil); err != nil {
		t.Fatal(err)
	}
	b := mustRead(t, filepath.Join(r.Dir(), eventsFile))
	if n := strings.Count(string(b), "\n"); n != 3 {
		t.Fatalf("%d lines of 3 events:\n%s", n, b)
	}
	if i := slices.IndexFunc(b, func(c byte) bool { return c < ' ' && c != '\n' }); i >= 0 {
		t.Errorf("control character %#x in the chain", b[i])
	}
	if err := r.Event("big", strings.Repeat("x", MaxEventData)); err == nil {
		t.Error("data over its bound was taken")
	}
	rec, _ := s.Load(r.ID())
	events, err := rec.Events()
	if err != nil || len(events) != 3 {
		t.Fatalf("%d events, %v", len(events), err)
	}
}

func TestManyFilesMakeSeveralEvents(t *testing.T) {
	s := newStore(t)
	r := newRun(t, s)
	var refs []FileRef
	for i := range 5000 {
		name := fmt.Sprintf("f%04d-%s", i, strings.Repeat("\x7f", 200))
		refs = append(refs, FileRef{Path: "output/" + name, SHA256: sumHex(nil)})
		mustWrite(t, filepath.Join(r.OutputDir(), name), nil)
	}
	if err := r.Event(EventOutputs, map[string]int{"n": len(refs)}, refs...); err != nil {
		t.Fatal(err)
	}
	finish(t, r)
	rec, _ := s.Load(r.ID())
	events, err := rec.Events()
	if err != nil {
		t.Fatal(err)
	}
	var got []FileRef
	withData := 0
	for _, e := range events {
		if e.Type == EventOutputs {
			got = append(got, e.Files...)
			if e.Data != nil {
				withData++
			}
		}
	}
	if diff := cmp.Diff(refs, got); diff != "" || withData != 1 || len(events) < 5 {
		t.Errorf("%d events, data in %d, %s", len(events), withData, diff)
	}
	wantProblems(t, verify(t, s, r.ID()), true)
}
