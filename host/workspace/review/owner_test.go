package review

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestOwner is about root applying to somebody's project: what comes is theirs, and never the sandbox's.
func TestOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	const user, group, sandbox = 42424, 42425, 42426
	f := newFixture(t, "edit=1", "ours=1", "dir/x=1", "type=1")
	f.write("edit=2", "ours=2", "new/deep/file=n", "dir/new->x")
	f.remove("type")
	f.write("type/in=t")
	f.seal()
	own := func(dir string, uid, gid int) {
		filepath.WalkDir(dir, func(p string, _ os.DirEntry, _ error) error { return os.Lchown(p, uid, gid) })
	}
	own(f.project, user, group)
	if err := os.Lchown(f.project+"/ours", 0, 0); err != nil {
		t.Fatal(err)
	}
	own(f.upper, sandbox, sandbox)
	f.rebase()
	before := ownersOf(t, f.project)
	if _, err := f.apply(f.open(), Policy{}); err != nil {
		t.Fatal(err)
	}
	want := map[string][2]uint32{"ours": {0, 0}}
	for _, p := range []string{".", "edit", "dir", "dir/x", "dir/new", "new", "new/deep", "new/deep/file", "type", "type/in"} {
		want[p] = [2]uint32{user, group}
	}
	if d := cmp.Diff(want, ownersOf(t, f.project)); d != "" {
		t.Errorf("owners (-want +got):\n%s", d)
	}
	if _, err := f.ledger.Undo(t.Context(), "box"); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(before, ownersOf(t, f.project)); d != "" {
		t.Errorf("owners after the undo (-before +after):\n%s", d)
	}
}

func ownersOf(t *testing.T, dir string) map[string][2]uint32 {
	out := map[string][2]uint32{}
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		st := fi.Sys().(*syscall.Stat_t)
		out[rel] = [2]uint32{st.Uid, st.Gid}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestCancelled ends the context at every point: the apply takes itself back, or is done.
func TestCancelled(t *testing.T) {
	for n := 1; ; n++ {
		f := crashFixture(t)
		before, want := pictureOf(f.project, true), pictureOf(f.merged, false)
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
		_, err = f.ledger.Apply(ctx, r, p)
		cancel()
		f.noLitter()
		switch {
		case err == nil && pictureOf(f.project, false) != want:
			t.Fatalf("cancelled at point %d it says that it is done, and is not", n)
		case err != nil && !errors.Is(err, context.Canceled):
			t.Fatalf("cancelled at point %d: %v", n, err)
		case err != nil && pictureOf(f.project, true) != before:
			t.Fatalf("cancelled at point %d, the project is not as before:\n%s", n, cmp.Diff(before, pictureOf(f.project, true)))
		}
		if seen < n {
			return
		}
	}
}
