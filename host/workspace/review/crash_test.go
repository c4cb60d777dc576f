package review

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

type crash struct{}

// crashAt makes the ledger die at the nth point, as a killed process does: nothing of it runs after that but what
// closes files. It returns whether that point was reached.
func crashAt(l *Ledger, n int, f func()) (died bool) {
	defer func() {
		l.at = nil
		if x := recover(); x != nil {
			if _, ok := x.(crash); !ok {
				panic(x)
			}
			died = true
		}
	}()
	seen := 0
	l.at = func(string) {
		if seen++; seen == n {
			panic(crash{})
		}
	}
	f()
	return false
}

// crashFixture has every kind of change in it.
func crashFixture(t *testing.T) *fixture {
	f := newFixture(t, "keep=k", "edit=one\ntwo\n", "gone=g", "dir/gone=x", "dir/sub/gone=y", "link->keep", "tofile/in=z", "todir=f", "tool=t", "move=moved content")
	f.write("edit=one\n2\n", "new=n", "fresh/deep/new=d", "fresh/tool*=t", "link->edit")
	f.remove("gone", "dir", "tofile", "todir", "move")
	f.write("tofile=now a file", "todir/in=now a directory", "moved=moved content")
	if err := os.Chmod(filepath.Join(f.merged, "tool"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.seal()
	return f
}

// TestCrashAtEveryPoint kills an apply, an undo, and the recovery from each, at every point there is.
func TestCrashAtEveryPoint(t *testing.T) {
	for n := 1; ; n++ {
		f := crashFixture(t)
		before, want := pictureOf(f.project, true), pictureOf(f.merged, false)
		r := f.open()
		p, err := r.Plan(t.Context(), r.All(), everything())
		if err != nil {
			t.Fatal(err)
		}
		died := crashAt(f.ledger, n, func() {
			if _, err := f.ledger.Apply(context.Background(), r, p); err != nil {
				t.Fatal(err)
			}
		})
		// The recovery dies as well, once at every point, and another one goes on.
		for k := 1; died && crashAt(f.ledger, k, func() { recoverAll(t, f.ledger) }); k += 1 + n%3 {
		}
		recoverAll(t, f.ledger)
		f.noLitter()
		switch got := pictureOf(f.project, true); {
		case got == before:
		case pictureOf(f.project, false) == want:
		default:
			t.Fatalf("killed at point %d, the project is neither old nor new (-old +project):\n%s", n, cmp.Diff(before, got))
		}
		f.noConflict("L6: killed at point %d, and recovered", n)
		if !died {
			if n < 40 {
				t.Errorf("only %d points: the test looks at too little", n)
			}
			if pictureOf(f.project, false) != want {
				t.Error("without a crash it was not applied")
			}
			return
		}
	}
}

func TestCrashOfUndoAtEveryPoint(t *testing.T) {
	for n := 1; ; n++ {
		f := crashFixture(t)
		before, want := pictureOf(f.project, true), pictureOf(f.merged, false)
		if _, err := f.apply(f.open(), everything()); err != nil {
			t.Fatal(err)
		}
		died := crashAt(f.ledger, n, func() {
			if _, err := f.ledger.Undo(context.Background(), "box"); err != nil {
				t.Fatal(err)
			}
		})
		recoverAll(t, f.ledger)
		f.noLitter()
		switch got := pictureOf(f.project, false); {
		case got == want: // it is as before the undo, which can be had again
			if _, err := f.ledger.Undo(t.Context(), "box"); err != nil {
				t.Fatalf("killed at point %d, the undo cannot be repeated: %v", n, err)
			}
		case pictureOf(f.project, true) == before:
		default:
			t.Fatalf("killed at point %d, the project is neither old nor new:\n%s", n, cmp.Diff(want, got))
		}
		if d := cmp.Diff(before, pictureOf(f.project, true)); d != "" {
			t.Fatalf("killed at point %d, the undo gives (-before +after):\n%s", n, d)
		}
		if list, err := f.ledger.applied(); err != nil || len(list) > 0 {
			t.Fatalf("killed at point %d, there is still %v to undo, %v", n, list, err)
		}
		f.noConflict("L6: the undo was killed at point %d, and recovered", n)
		if !died {
			return
		}
	}
}

// TestL6RolledBack ends applies at every point by a failure, as a full disk does (K4), and then lets the base be
// written only by the recovery.
func TestL6RolledBack(t *testing.T) {
	for n := 1; ; n++ {
		f := crashFixture(t)
		before := pictureOf(f.project, true)
		r := f.open()
		p, err := r.Plan(t.Context(), r.All(), everything())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		seen := 0
		f.ledger.at = func(string) {
			if seen++; seen == n {
				cancel()
			}
		}
		f.placeErr = unix.ENOSPC
		if n%2 == 0 {
			f.placeErr = nil
		}
		a, err := f.ledger.Apply(ctx, r, p)
		cancel()
		if err == nil {
			if (a.NoBase == nil) != (f.placeErr == nil) {
				t.Errorf("the base was not written, and the apply says %v", a.NoBase)
			}
			return
		}
		f.ledger.at, f.placeErr = nil, nil
		recoverAll(t, f.ledger)
		if d := cmp.Diff(before, pictureOf(f.project, true)); d != "" {
			t.Fatalf("ended at point %d (-before +after):\n%s", n, d)
		}
		f.noConflict("ended at point %d and rolled back", n)
	}
}

// TestL6Others undoes an apply: another sandbox of the project knows the restored file, and not one that was changed.
func TestL6Others(t *testing.T) {
	f := newFixture(t, "a=a", "b=b")
	plant(t, f.project, "b=changed since")
	b, err := os.ReadFile(f.SandboxBase("box-id"))
	if err != nil {
		t.Fatal(err)
	}
	f.rebase()
	if err := os.WriteFile(f.SandboxBase("other-id"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	f.write("a=A", "b=B")
	f.seal()
	if _, err := f.apply(f.open(), everything()); err != nil {
		t.Fatal(err)
	}
	if _, err := f.ledger.Undo(t.Context(), "box"); err != nil {
		t.Fatal(err)
	}
	if f.base, err = ReadBase(f.SandboxBase("other-id")); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"b"}, f.blocked()); d != "" {
		t.Errorf("in conflict for the other sandbox (-want +got):\n%s", d)
	}
}

func recoverAll(t *testing.T, l *Ledger) {
	t.Helper()
	list, err := l.Recover(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range list {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
}

// TestRandomCrashes is the same for random trees.
func TestRandomCrashes(t *testing.T) {
	rounds := 200
	if testing.Short() {
		rounds = 40
	}
	for seed := range rounds {
		rnd := rand.New(rand.NewPCG(uint64(seed), 7))
		f := newFixture(t)
		for range 20 {
			mutate(t, rnd, f.project)
		}
		if err := copyIn(f.project, f.merged, ""); err != nil {
			t.Fatal(err)
		}
		f.rebase()
		for range 15 {
			mutate(t, rnd, f.merged)
		}
		f.seal()
		before, want := pictureOf(f.project, true), pictureOf(f.merged, false)
		r := f.open()
		p, err := r.Plan(t.Context(), r.All(), everything())
		if err != nil {
			t.Fatal(err)
		}
		if len(p.steps) == 0 {
			continue
		}
		crashAt(f.ledger, 1+rnd.IntN(4*len(p.steps)), func() {
			if _, err := f.ledger.Apply(context.Background(), r, p); err != nil {
				t.Fatal(err)
			}
		})
		recoverAll(t, f.ledger)
		f.noLitter()
		if got := pictureOf(f.project, true); got != before && pictureOf(f.project, false) != want {
			t.Fatalf("seed %d: neither old nor new (-old +project):\n%s", seed, cmp.Diff(before, got))
		}
		f.noConflict("L6: seed %d", seed)
	}
}

// TestKilledProcess does with a real process and SIGKILL what the tests above do with a panic.
func TestKilledProcess(t *testing.T) {
	if top := os.Getenv("HUTCH_REVIEW_TEST_DIR"); top != "" {
		die, _ := strconv.Atoi(os.Getenv("HUTCH_REVIEW_TEST_POINT"))
		f := &fixture{t: t, project: top + "/project", merged: top + "/merged", upper: top + "/upper"}
		f.ledger = NewLedger(top+"/ledger", f)
		f.rebase()
		seen := 0
		f.ledger.at = func(string) {
			if seen++; seen == die {
				syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
		}
		_, err := f.apply(f.open(), everything())
		t.Fatal("it was not killed: ", err)
	}
	for _, n := range []int{1, 5, 12, 20, 33} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			f := crashFixture(t)
			before := pictureOf(f.project, true)
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledProcess$")
			cmd.Env = append(os.Environ(), "HUTCH_REVIEW_TEST_DIR="+filepath.Dir(f.project), fmt.Sprintf("HUTCH_REVIEW_TEST_POINT=%d", n))
			out, err := cmd.CombinedOutput()
			if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !ws.Signaled() {
				t.Fatalf("the process was not killed: %v\n%s", err, out)
			}
			recoverAll(t, f.ledger)
			f.noLitter()
			if d := cmp.Diff(before, pictureOf(f.project, true)); d != "" {
				t.Errorf("after the recovery (-before +after):\n%s", d)
			}
			entries, err := os.ReadDir(f.ledger.Dir())
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				if e.Name() != "lock" {
					t.Errorf("the ledger keeps %s of a dead process", e.Name())
				}
			}
		})
	}
}
