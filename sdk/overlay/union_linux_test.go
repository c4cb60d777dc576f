package overlay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/internal/overlaytest"
)

func TestMain(m *testing.M) {
	overlaytest.Main()
	os.Exit(m.Run())
}

func openUnion(t testing.TB, lower, upper string, trusted bool) *Union {
	t.Helper()
	u, err := OpenUnion(lower, upper, UnionOptions{Trusted: trusted, At: overlaytest.At})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.Close() })
	return u
}

// unionView is overlaytest.View of a union, by Scan and the methods of Dir; every path is looked at by Lstat and Open too.
func unionView(t testing.TB, u *Union) []string {
	t.Helper()
	var mu sync.Mutex
	var out []string
	err := u.Scan(t.Context(), ".", ScanOptions{}, func(d *Dir, names []Name) error {
		if d.Err != nil {
			return d.Err
		}
		for _, n := range names {
			e, err := d.Lstat(n)
			if err != nil {
				return err
			}
			again, err := u.Lstat(e.Path)
			if err != nil {
				return err
			}
			if diff := cmp.Diff(e, again); diff != "" {
				return fmt.Errorf("%s: Dir.Lstat and Union.Lstat differ:\n%s", e.Path, diff)
			}
			var content []byte
			if e.Mode.IsRegular() {
				if content, err = d.ReadFile(n, 1<<20, nil); err != nil {
					return err
				}
				f, _, err := u.Open(e.Path, -1)
				if err != nil {
					return err
				}
				b, err := io.ReadAll(f)
				f.Close()
				if err != nil || !bytes.Equal(b, content) || int64(len(b)) != e.Size {
					return fmt.Errorf("%s: Open gives %q, %v; ReadFile %q; the size is %d", e.Path, b, err, content, e.Size)
				}
			}
			mu.Lock()
			out = append(out, overlaytest.Line(e.Path, e.Mode, content, e.Target))
			mu.Unlock()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(out)
	return out
}

// doUnion does to a union what the operation asks for.
func doUnion(u *Union, o overlaytest.Op) error {
	switch o.Do {
	case "write":
		return u.WriteFile(o.Path, strings.NewReader(o.Data), o.Mode)
	case "append":
		f, e, err := u.Open(o.Path, -1)
		if err != nil {
			return err
		}
		defer f.Close()
		return u.WriteFile(o.Path, io.MultiReader(f, strings.NewReader(o.Data)), e.Mode)
	case "mkdir":
		return u.MkdirAll(o.Path, o.Mode)
	case "remove":
		return u.Remove(o.Path, true)
	case "symlink":
		return u.Symlink(o.To, o.Path)
	case "chmod":
		return u.Chmod(o.Path, o.Mode)
	case "rename":
		return renameUnion(u, o.Path, o.To)
	}
	return fmt.Errorf("there is no %q", o.Do)
}

// renameUnion copies and removes. It is called only when the kernel was able to rename.
func renameUnion(u *Union, from, to string) error {
	e, err := u.Lstat(from)
	if err != nil {
		return err
	}
	if old, err := u.Lstat(to); err == nil {
		if dir, err := u.Resolve(path.Dir(to)); err == nil && path.Join(dir, path.Base(to)) == e.Path {
			return nil
		}
		if err := u.Remove(to, old.Mode.IsDir()); err != nil {
			return err
		}
	}
	if err := copyUnion(u, e, to); err != nil {
		return err
	}
	return u.Remove(from, true)
}

func copyUnion(u *Union, e Node, to string) error {
	switch e.Mode.Type() {
	case fs.ModeSymlink:
		return u.Symlink(e.Target, to)
	case 0:
		f, _, err := u.Open(e.Path, -1)
		if err != nil {
			return err
		}
		defer f.Close()
		return u.WriteFile(to, f, e.Mode)
	}
	if err := u.MkdirAll(to, e.Mode); err != nil {
		return err
	}
	var below []Node
	err := u.Scan(context.Background(), e.Path, ScanOptions{Depth: 1, Workers: 1}, func(d *Dir, names []Name) error {
		for _, n := range names {
			e, err := d.Lstat(n)
			if err != nil {
				return err
			}
			below = append(below, e)
		}
		return nil
	})
	for _, e := range below {
		err = errors.Join(err, copyUnion(u, e, path.Join(to, path.Base(e.Path))))
	}
	return err
}

// TestUnionIsAnOverlay does random operations on a real overlay and on a union beside it. After each one the layers of
// the overlay, read as a union, show what the overlay shows, and so does the union that was written to; at the end, an
// overlay mounted over that union's layers shows it as well.
func TestUnionIsAnOverlay(t *testing.T) {
	rounds, steps := 12, 120
	if testing.Short() {
		rounds = 3
	}
	for _, trusted := range []bool{false, true} {
		for seed := range rounds {
			t.Run(fmt.Sprintf("trusted=%t/%d", trusted, seed), func(t *testing.T) {
				differential(t, trusted, rand.New(rand.NewPCG(uint64(seed), 7)), steps)
			})
		}
	}
}

func differential(t *testing.T, trusted bool, r *rand.Rand, steps int) {
	lower := overlaytest.Lower(t)
	m := overlaytest.Start(t, lower, overlaytest.Options{Trusted: trusted})
	beside := openUnion(t, lower, m.Upper, trusted)
	ours := t.TempDir() + "/upper"
	if err := os.Mkdir(ours, 0o755); err != nil {
		t.Fatal(err)
	}
	alone := openUnion(t, lower, ours, trusted)
	before, err := overlaytest.View(lower)
	if err != nil {
		t.Fatal(err)
	}
	well := 0
	var last []string
	for step := range steps {
		op := overlaytest.Random(r)
		a := m.Do(op)
		if diff := cmp.Diff(a.View, unionView(t, beside)); diff != "" {
			t.Fatalf("step %d, %s: overlay and its layers (-overlay +union):\n%s", step, op, diff)
		}
		if op.Do == "rename" && a.Err != "" {
			continue
		}
		if a.Err == "" {
			well++
		}
		err := doUnion(alone, op)
		if errors.Is(err, ErrOutside) {
			// The program went there and the union refuses to: nothing has changed for either.
			err, a.Err = nil, ""
		}
		if (err == nil) != (a.Err == "") {
			t.Fatalf("step %d, %s: the overlay says %q, the union %v", step, op, a.Err, err)
		}
		if diff := cmp.Diff(a.View, unionView(t, alone)); diff != "" {
			t.Fatalf("step %d, %s: (-overlay +written union):\n%s", step, op, diff)
		}
		last = a.View
	}
	if well < steps/4 {
		t.Errorf("only %d of %d operations went well, which proves little", well, steps)
	}
	if left, _ := fs.Glob(os.DirFS(ours), ".hutch-union-*"); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	after, err := overlaytest.View(lower)
	if diff := cmp.Diff(before, after); diff != "" || err != nil {
		t.Errorf("the lower directory changed: %v\n%s", err, diff)
	}
	mounted := overlaytest.Start(t, lower, overlaytest.Options{Trusted: trusted, Upper: ours})
	if diff := cmp.Diff(last, mounted.Do(overlaytest.Op{Do: "view"}).View); diff != "" {
		t.Errorf("what the union wrote, mounted (-written +mounted):\n%s", diff)
	}
}
