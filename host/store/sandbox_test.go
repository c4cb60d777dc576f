package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func beginBox(t *testing.T, s *Store, name string) *SandboxRecord {
	t.Helper()
	r, err := s.BeginSandbox(SandboxInfo{Name: name, Backend: "fake", Binary: "/x/hutch-backend-fake"}, "box")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// readyBox is a sandbox that is there and that nobody works in.
func readyBox(t *testing.T, s *Store, name string) SandboxInfo {
	t.Helper()
	r := beginBox(t, s, name)
	if err := r.Update(func(i *SandboxInfo) { i.State, i.Handle = SandboxReady, json.RawMessage(`{}`) }); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	return r.Info()
}

func TestSandboxNames(t *testing.T) {
	s := newStore(t)
	for _, c := range []struct{ name, want, got string }{
		{"", "Report of 3", "report-of-3"}, {"", "report of 3", "report-of-3-2"}, {"", "3 + 4", "sandbox"}, {"", "../../x", "x"},
		{"", strings.Repeat("a", 100), strings.Repeat("a", 56)}, {"Web.1", "", "Web.1"}, {"", "é", "sandbox-2"},
	} {
		r, err := s.BeginSandbox(SandboxInfo{Name: c.name}, c.want)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Info().Name; got != c.got {
			t.Errorf("%q, %q: %q, want %q", c.name, c.want, got, c.got)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.BeginSandbox(SandboxInfo{Name: "Web.1"}, ""); !errors.Is(err, ErrNameTaken) {
		t.Errorf("a name twice: %v", err)
	}
	for _, bad := range []string{"1", "-a", "a/b", "a:b", "a b", strings.Repeat("a", 65), "ä", "a\n"} {
		if _, err := s.BeginSandbox(SandboxInfo{Name: bad}, ""); err == nil {
			t.Errorf("name %q was taken", bad)
		}
	}
}

func TestFindSandbox(t *testing.T) {
	s := newStore(t)
	web, db := readyBox(t, s, "web"), readyBox(t, s, "db")
	for ref, want := range map[string]string{"web": web.ID, web.ID: web.ID, db.ID[len(db.ID)-6:]: db.ID} {
		if got, err := s.FindSandbox(ref); err != nil || got.ID != want {
			t.Errorf("%q: %q %v", ref, got.ID, err)
		}
	}
	if _, err := s.FindSandbox(web.ID[:6]); !errors.Is(err, ErrAmbiguous) {
		t.Errorf("a prefix of both: %v", err)
	}
	for _, ref := range []string{"", "nobody", "..", "web/"} {
		if _, err := s.FindSandbox(ref); !errors.Is(err, ErrNoSandbox) {
			t.Errorf("%q: %v", ref, err)
		}
	}
	mustWrite(t, filepath.Join(s.paths.Sandbox(web.ID), sandboxFile), []byte("{"))
	if got, err := s.FindSandbox(web.ID); err != nil || got.State != SandboxDamaged || got.Damage == "" {
		t.Errorf("a damaged record: %+v %v", got, err)
	}
}

func TestSandboxLocks(t *testing.T) {
	s := newStore(t)
	info := readyBox(t, s, "web")
	open := func(alone bool, patience time.Duration) (*SandboxRecord, error) {
		return s.OpenSandbox(t.Context(), info.ID, alone, patience)
	}
	a, err := open(false, 0)
	if err != nil {
		t.Fatal(err)
	}
	if flags, err := unix.FcntlInt(a.lock.Fd(), unix.F_GETFL, 0); err != nil || flags&unix.O_ACCMODE != unix.O_RDONLY {
		t.Errorf("a reader's lock cannot be taken on a read-only file system: %#x, %v", flags, err)
	}
	b, err := open(false, 0)
	if err != nil {
		t.Fatalf("two at once: %v", err)
	}
	if _, err := open(true, 0); !errors.Is(err, ErrInUse) {
		t.Errorf("alone beside two: %v", err)
	}
	b.Close()
	freed := make(chan error, 1)
	go func() {
		r, err := open(true, time.Minute)
		if err == nil {
			err = r.Close()
		}
		freed <- err
	}()
	a.Close()
	if err := <-freed; err != nil {
		t.Errorf("alone after both: %v", err)
	}
	r, err := open(true, 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.OpenSandbox(ctx, info.ID, false, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that gave up: %v", err)
	}
	waiting := make(chan error, 1)
	go func() {
		_, err := open(false, time.Minute)
		waiting <- err
	}()
	if err := r.Forget(); err != nil {
		t.Fatal(err)
	}
	if err := <-waiting; !errors.Is(err, ErrNoSandbox) {
		t.Errorf("who waited for one that was removed: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
}

func TestSandboxKeepsItsSecretsApart(t *testing.T) {
	s := newStore(t)
	r := beginBox(t, s, "web")
	defer r.Close()
	if err := r.WritePrivate(map[string]string{"TOKEN": "hunter2"}); err != nil {
		t.Fatal(err)
	}
	var got map[string]string
	if err := r.ReadPrivate(&got); err != nil || got["TOKEN"] != "hunter2" {
		t.Errorf("%v %v", got, err)
	}
	fi, err := os.Stat(filepath.Join(r.Dir(), sandboxPrivateFile))
	if err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", fi, err)
	}
}

// TestGCFinishesSandboxes: one that is there stays whatever its host is, and halves go, through their backend.
func TestGCFinishesSandboxes(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", mkdir(t, shortTemp(t), "r", 0o700))
	s := newStore(t)
	there := readyBox(t, s, "there")
	state := mkdir(t, s.paths.Sandboxes(), there.ID+stateSuffix, 0o700)

	making := beginBox(t, s, "making") // its host is this process, and at it
	half := beginBox(t, s, "half")
	intent := begin(t, s, half.ID())
	if err := intent.SetHandle(json.RawMessage(`{"half":1}`)); err != nil {
		t.Fatal(err)
	}
	orphan(t, intent)
	half.Close()
	nothing := beginBox(t, s, "nothing") // its host died before it announced anything
	nothing.Close()
	going := readyBox(t, s, "going")
	r, err := s.OpenSandbox(t.Context(), going.ID, true, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Update(func(i *SandboxInfo) { i.State = SandboxRemoving }); err != nil {
		t.Fatal(err)
	}
	r.Close()
	// This one was ready, and its host died before it forgot the intent.
	late := readyBox(t, s, "late")
	lateIntent := begin(t, s, late.ID)
	orphan(t, lateIntent)

	var destroyed []string
	opt := GCOptions{
		Destroy: func(_ context.Context, i Intent) error { destroyed = append(destroyed, i.ID); return nil },
		Find: func(context.Context) ([]Intent, error) {
			return []Intent{{ID: there.ID, Backend: "fake"}, {ID: making.ID(), Backend: "fake"}, {ID: "lost-1", Backend: "fake"}}, nil
		},
	}
	items, err := collect(t, s, opt)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range items {
		if i.Error != "" {
			t.Errorf("%+v", i)
		}
	}
	want := []string{half.ID(), going.ID, "lost-1"}
	slices.Sort(want)
	slices.Sort(destroyed)
	if diff := cmp.Diff(want, destroyed); diff != "" {
		t.Error(diff)
	}
	list, err := s.Sandboxes()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, i := range list {
		names = append(names, i.Name)
	}
	if diff := cmp.Diff([]string{"there", "making", "late"}, names); diff != "" {
		t.Error(diff)
	}
	if _, err := os.Stat(state); err != nil {
		t.Errorf("a living sandbox's files: %v", err)
	}
	if left, err := s.Intents(); err != nil || len(left) != 0 {
		t.Errorf("intents left: %v %v", left, err)
	}
	if items, err = collect(t, s, GCOptions{Destroy: opt.Destroy}); err != nil || slices.ContainsFunc(items, func(i GCItem) bool { return i.Kind == GCSandbox }) {
		t.Errorf("a second time: %v %v", items, err)
	}
	making.Close()
}

func TestVerifySandboxes(t *testing.T) {
	s := newStore(t)
	info := readyBox(t, s, "web")
	r, err := s.OpenSandbox(t.Context(), info.ID, false, 0)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := r.WriteCode("a/main.py", 0o644, strings.NewReader("print()"))
	if err != nil {
		t.Fatal(err)
	}
	ref.Path = "code/a/main.py"
	if err := errors.Join(r.Event(EventCode, nil, ref), r.Event(EventExecStart, map[string]any{"argv": []string{"true"}})); err != nil {
		t.Fatal(err)
	}
	r.Close()
	verify := func() (problems []Problem) {
		t.Helper()
		if err := s.VerifyAll(t.Context(), "", func(rep *Report) error {
			for _, f := range rep.Findings {
				problems = append(problems, f.Problem)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return problems
	}
	if got := verify(); len(got) != 0 {
		t.Errorf("an intact one: %v", got)
	}
	rep, err := s.VerifySandbox(t.Context(), info.ID)
	if err != nil || !rep.OK || rep.Events != 4 || rep.Files != 2 || rep.Sandbox != info.ID {
		t.Errorf("%+v %v", rep, err)
	}
	code := filepath.Join(r.CodeDir(), "a/main.py")
	mustWrite(t, code, []byte("other()"))
	if diff := cmp.Diff([]Problem{ProblemFileChanged}, verify()); diff != "" {
		t.Error(diff)
	}
	mustWrite(t, code, []byte("print()"))
	chain := filepath.Join(r.Dir(), eventsFile)
	whole := mustRead(t, chain)
	mustWrite(t, chain, []byte(strings.Replace(string(whole), "true", "fals", 1)))
	if got := verify(); !slices.Contains(got, ProblemBrokenEvent) {
		t.Errorf("a changed event: %v", got)
	}
	mustWrite(t, chain, whole)
	if err := os.RemoveAll(r.Dir()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Problem{ProblemSandboxMissing}, verify()); diff != "" {
		t.Error(diff)
	}
	other := readyBox(t, s, "other")
	o, err := s.OpenSandbox(t.Context(), other.ID, true, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Forget(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Problem{ProblemSandboxMissing}, verify()); diff != "" {
		t.Errorf("one that hutch removed: %s", diff)
	}
}

// TestVerifyChangesByHand cuts an event off the end of a sandbox's chain: the audit chain knows that it was there.
func TestVerifyChangesByHand(t *testing.T) {
	s := newStore(t)
	info := readyBox(t, s, "web")
	r, err := s.OpenSandbox(t.Context(), info.ID, false, 0)
	if err != nil {
		t.Fatal(err)
	}
	chain := filepath.Join(r.Dir(), eventsFile)
	before := mustRead(t, chain)
	if err := r.Changed(EventSandboxWrite, map[string]any{"path": "a"}); err != nil {
		t.Fatal(err)
	}
	whole := mustRead(t, chain)
	if err := errors.Join(r.Event(EventExecStart, nil), r.Close()); err != nil {
		t.Fatal(err)
	}
	verify := func() []Problem { return boxProblems(t, s, info.ID) }
	if got := verify(); len(got) != 0 {
		t.Errorf("an intact one: %v", got)
	}
	mustWrite(t, chain, whole)
	if got := verify(); len(got) != 0 {
		t.Errorf("cut behind the change: %v", got)
	}
	mustWrite(t, chain, before)
	if diff := cmp.Diff([]Problem{ProblemHeadMismatch}, verify()); diff != "" {
		t.Error(diff)
	}
}

// TestVerifyCommandsInside cuts what a sandbox's chain says of a command that ran in it: the end of that run, in the
// audit chain, knows that it was there, also when the run itself is removed.
func TestVerifyCommandsInside(t *testing.T) {
	s := newStore(t)
	info := readyBox(t, s, "web")
	box, err := s.OpenSandbox(t.Context(), info.ID, false, 0)
	if err != nil {
		t.Fatal(err)
	}
	chain := filepath.Join(box.Dir(), eventsFile)
	before := mustRead(t, chain)
	run := newRun(t, s)
	if err := errors.Join(box.Event(EventExecStart, nil), box.Event(EventExecEnd, nil)); err != nil {
		t.Fatal(err)
	}
	_, err = run.Finish(End{OK: true, Sandbox: box})
	if err := errors.Join(err, box.Close()); err != nil {
		t.Fatal(err)
	}
	problems := func() []Problem { return boxProblems(t, s, info.ID) }
	whole := mustRead(t, chain)
	lines := bytes.SplitAfter(whole, []byte("\n"))
	withoutEnd := bytes.Join(lines[:len(lines)-2], nil) // the last of the pieces is empty
	for range 2 {
		mustWrite(t, chain, whole)
		if got := problems(); len(got) != 0 {
			t.Errorf("an intact one: %v", got)
		}
		for what, cut := range map[string][]byte{"its end": withoutEnd, "both events": before} {
			mustWrite(t, chain, cut)
			if diff := cmp.Diff([]Problem{ProblemHeadMismatch}, problems()); diff != "" {
				t.Errorf("without %s: %s", what, diff)
			}
		}
		if err := s.Remove(run.ID()); err != nil && !errors.Is(err, ErrNotFound) {
			t.Fatal(err)
		}
	}
}

// boxProblems are those that verifying a persistent sandbox finds.
func boxProblems(t *testing.T, s *Store, id string) (problems []Problem) {
	t.Helper()
	rep, err := s.VerifySandbox(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range rep.Findings {
		problems = append(problems, f.Problem)
	}
	return problems
}
