package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

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
