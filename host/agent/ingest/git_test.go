package ingest

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestAgainstGit makes random trees, changes them at random, and lets git write the patch: what this package makes of
// the old tree with that patch must be the new tree.
func TestAgainstGit(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		if slices.Contains(strings.Split(os.Getenv("HUTCH_TEST_REQUIRE"), ","), "git") {
			t.Fatal("git is required and missing")
		}
		t.Skip("git is missing")
	}
	rounds := 40
	if testing.Short() {
		rounds = 10
	}
	for seed := range rounds {
		r := rand.New(rand.NewPCG(uint64(seed), 7))
		dir := t.TempDir()
		old, after := randomTree(r), memTree{}
		for name, text := range old {
			after[name] = text
		}
		changeTree(r, after)
		git := func(args ...string) []byte {
			cmd := exec.Command("git", args...)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "HOME="+dir, "LC_ALL=C")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("git %s: %v\n%s", args, err, out)
			}
			return out
		}
		git("init", "-q")
		git("config", "core.autocrlf", "false")
		git("config", "core.safecrlf", "false")
		writeTree(t, dir, old)
		git("add", "-A")
		for name := range old {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		writeTree(t, dir, after)
		git("add", "-N", "--ignore-removal", ".")
		context := fmt.Sprintf("-U%d", 1+r.IntN(3))
		for _, args := range [][]string{{"diff", "--no-color", "-M", context}, {"diff", "--no-color", "--no-renames", context}} {
			patch := git(args...)
			if len(patch) == 0 {
				continue
			}
			a, err := Parse(patch, Diff)
			if err != nil {
				t.Fatalf("seed %d: %v\n%s", seed, err, patch)
			}
			out, notes, err := a.Apply(old)
			if err != nil {
				t.Fatalf("seed %d: %v\n%s", seed, err, patch)
			}
			if len(notes)+len(a.Notes) > 0 {
				t.Errorf("seed %d: git's own patch needed good will: %q %q", seed, notes, a.Notes)
			}
			got := memTree{}
			for name, text := range old {
				got[name] = text
			}
			for _, o := range out {
				if o.Deleted {
					delete(got, o.Path)
				} else {
					got[o.Path] = string(o.Content)
				}
			}
			if d := cmp.Diff(after, got); d != "" {
				t.Fatalf("seed %d %v (-git +hutch):\n%s\npatch:\n%s", seed, args, d, patch)
			}
		}
	}
}

var words = []string{"a", "b", "return 1", "}", "", "", "\tx := 1", "-- comment", "+++ plus", "--- minus", "@@ at", "ü", "diff --git a/x b/x"}

func randomText(r *rand.Rand) string {
	var b bytes.Buffer
	end := "\n"
	if r.IntN(8) == 0 {
		end = "\r\n"
	}
	for range r.IntN(40) {
		b.WriteString(words[r.IntN(len(words))] + end)
	}
	if r.IntN(4) == 0 {
		return strings.TrimSuffix(b.String(), end)
	}
	return b.String()
}

func randomTree(r *rand.Rand) memTree {
	t := memTree{}
	for i := range 1 + r.IntN(6) {
		t[fmt.Sprintf("d%d/f %d.txt", r.IntN(2), i)] = randomText(r)
	}
	return t
}

func changeTree(r *rand.Rand, t memTree) {
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for n := range t {
			if !yield(n) {
				return
			}
		}
	}) {
		switch r.IntN(6) {
		case 0:
			delete(t, name)
		case 1:
			t["moved/"+filepath.Base(name)] = t[name]
			delete(t, name)
		case 2, 3, 4:
			lines := strings.SplitAfter(t[name], "\n")
			for range 1 + r.IntN(4) {
				at := r.IntN(len(lines))
				lines[at] = randomText(r)
				if !strings.HasSuffix(lines[at], "\n") {
					lines[at] += "\n"
				}
			}
			t[name] = strings.Join(lines, "")
		}
	}
	if r.IntN(2) == 0 {
		t["new/größe "+fmt.Sprint(r.IntN(100))] = randomText(r)
	}
}

func writeTree(t *testing.T, dir string, tree memTree) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range tree {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func readTree(t *testing.T, dir string) memTree {
	t.Helper()
	out := memTree{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		b, err := os.ReadFile(p)
		out[filepath.ToSlash(rel)] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
