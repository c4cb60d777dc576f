package main

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/hutch-run/hutch/sdk"
)

// TestForksShareALayer makes forks of a fork in which nothing ran, and of one in which something did.
func TestForksShareALayer(t *testing.T) {
	needBwrap(t)
	spec := sdk.Spec{Workspace: sdk.Workspace{Mode: sdk.WorkspacePrivate,
		Source: write(t, t.TempDir(), map[string]string{"old": "old\n", "dir/old": "old\n"})}}
	create := func(from *sdk.Handle) (*sandbox, sdk.Handle, func()) {
		t.Helper()
		var h sdk.Handle
		req := request(t, spec)
		req.Keep, req.From = true, from
		req.Allocated = func(got sdk.Handle) error { h = got; return nil }
		b := newBackend()
		s, err := b.Create(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		destroy := func() {
			if err := b.Destroy(context.Background(), h); err != nil {
				t.Error(err)
			}
		}
		t.Cleanup(destroy)
		return s.(*sandbox), h, destroy
	}
	parent, handle, destroyParent := create(nil)
	sh(t, parent, "echo new > new; rm old; rm -r dir; mkdir dir; echo only > dir/only")
	layers := func() int {
		t.Helper()
		found, err := filepath.Glob(filepath.Join(filepath.Dir(parent.dir), "*.layer"))
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	want := func(n int, when string) {
		t.Helper()
		if got := layers(); got != n {
			t.Fatalf("there are %d frozen layers %s, want %d", got, when, n)
		}
	}
	has := func(s *sandbox, want string) {
		t.Helper()
		if r := sh(t, s, "find . -type f | sort"); r.out != want {
			t.Errorf("a fork has %q, want %q: %s", r.out, want, r.err)
		}
	}
	one, from, destroyOne := create(&handle)
	want(1, "after a fork")
	two, _, destroyTwo := create(&from)
	want(1, "after a fork of a fork in which nothing ran")
	destroyParent()
	has(one, "./dir/only\n./new\n")
	sh(t, one, "rm -r dir; echo one >> new; echo old > old")
	three, from, destroyThree := create(&from)
	want(2, "after a fork of one in which something ran")
	four, _, destroyFour := create(&from)
	has(two, "./dir/only\n./new\n")
	has(three, "./new\n./old\n")
	destroyOne()
	destroyThree()
	want(2, "while forks need both")
	has(four, "./new\n./old\n")
	changes, err := four.Changes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]sdk.ChangeKind{}
	for _, c := range changes {
		got[c.Path] = c.Kind
	}
	if len(got) != 3 || got["new"] != sdk.ChangeAdded || got["dir"] != sdk.ChangeDeleted ||
		got["dir/old"] != sdk.ChangeDeleted {
		t.Errorf("the changes of a fork of a fork are %v", got)
	}
	if err := four.Reset(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	has(four, "./dir/old\n./old\n")
	want(1, "after a hard reset of the last user of one")
	destroyTwo()
	destroyFour()
	want(0, "after all forks are gone")
}
