package review

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRandomTrees applies what random operations did to random trees, and undoes it: the first must give exactly what
// the sandbox saw, the second exactly what was there before, times included.
func TestRandomTrees(t *testing.T) {
	rounds := 150
	if testing.Short() {
		rounds = 40
	}
	for seed := range rounds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(uint64(seed), 1))
			f := newFixture(t)
			for range 25 {
				mutate(t, rnd, f.project)
			}
			if err := copyIn(f.project, f.merged, ""); err != nil {
				t.Fatal(err)
			}
			f.rebase()
			for range 1 + rnd.IntN(25) {
				mutate(t, rnd, f.merged)
			}
			f.seal()
			before := pictureOf(f.project, true)
			want := pictureOf(f.merged, false)
			r := f.open()
			if len(r.Changes) == 0 {
				if pictureOf(f.project, false) != want {
					t.Fatal("the trees differ and the review is empty")
				}
				return
			}
			if _, err := f.apply(r, everything()); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, pictureOf(f.project, false)); d != "" {
				t.Fatalf("the project after the apply (-sandbox +project):\n%s", d)
			}
			f.noLitter()
			if _, err := f.ledger.Undo(t.Context(), "box"); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(before, pictureOf(f.project, true)); d != "" {
				t.Fatalf("the project after the undo (-before +after):\n%s", d)
			}
			f.noLitter()
			if _, err := f.ledger.Undo(t.Context(), "box"); err == nil {
				t.Error("it can be undone a second time")
			}
		})
	}
}

// mutate does one random thing to a tree.
func mutate(t *testing.T, rnd *rand.Rand, dir string) {
	t.Helper()
	names := []string{"a", "b", "C", "d.txt", "odd\nname", "caf\xe9", "sub", "x y"}
	var all []string
	filepath.WalkDir(dir, func(p string, d fs.DirEntry, _ error) error {
		if rel, _ := filepath.Rel(dir, p); rel != "." {
			all = append(all, rel)
		}
		return nil
	})
	some := func() string {
		p := names[rnd.IntN(len(names))]
		for rnd.IntN(2) == 0 && strings.Count(p, "/") < 3 {
			p += "/" + names[rnd.IntN(len(names))]
		}
		return p
	}
	old := func() string {
		if len(all) == 0 {
			return ""
		}
		return filepath.Join(dir, all[rnd.IntN(len(all))])
	}
	content := func() []byte {
		var b strings.Builder
		for range rnd.IntN(12) {
			fmt.Fprintf(&b, "line %d\n", rnd.IntN(5))
		}
		if rnd.IntN(4) == 0 {
			b.WriteString("\x00binary")
		}
		return []byte(b.String())
	}
	// The links made here lead anywhere, so nothing may be made through one: an os.Root refuses what would be outside.
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	name := some()
	path := filepath.Join(dir, name)
	switch rnd.IntN(8) {
	case 0, 1, 2:
		if root.MkdirAll(filepath.Dir(name), 0o755) == nil {
			root.WriteFile(name, content(), 0o644)
		}
	case 3:
		root.MkdirAll(name, 0o755)
	case 4:
		if root.MkdirAll(filepath.Dir(name), 0o755) == nil {
			root.Symlink([]string{"a", "../b", "/nonexistent/of-the-host", "nowhere"}[rnd.IntN(4)], name)
		}
	case 5:
		if p := old(); p != "" {
			os.RemoveAll(p)
		}
	case 6:
		if p := old(); p != "" {
			fi, err := os.Lstat(p)
			if err == nil && fi.Mode().Type() != fs.ModeSymlink {
				modes := []fs.FileMode{0o644, 0o600, 0o755, 0o700, 0o777 | fs.ModeSticky, 0o755 | fs.ModeSetgid}
				mode := modes[rnd.IntN(len(modes))]
				if fi.IsDir() {
					mode |= 0o700 // an ordinary user could not look into it
				}
				os.Chmod(p, mode)
			}
		}
	case 7:
		if p := old(); p != "" && !slices.Contains(all, path) && !strings.HasPrefix(path, p) {
			if root.MkdirAll(filepath.Dir(name), 0o755) == nil {
				os.Rename(p, path)
			}
		}
	}
}
