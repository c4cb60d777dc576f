package bundle

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-run/hutch/internal/gittest"
)

// grown adds a commit with n random bytes to the user's branch, and returns it.
func (f *fixture) grown(name string, n int) string {
	f.t.Helper()
	b := make([]byte, n)
	_, _ = rand.Read(b)
	write(f.t, filepath.Join(f.repo.Dir, name), string(b))
	gittest.Run(f.t, f.repo.Dir, "add", "-A")
	gittest.Run(f.t, f.repo.Dir, "commit", "-q", "-m", name)
	return gittest.Run(f.t, f.repo.Dir, "rev-parse", "HEAD")
}

// sent is a bundle, as a file and as bytes.
func (f *fixture) sent(commit string, p Part) (name string, b []byte) {
	f.t.Helper()
	var out bytes.Buffer
	if err := Write(f.t.Context(), f.repo, commit, "main", p, &out); err != nil {
		f.t.Fatal(err)
	}
	name = filepath.Join(f.t.TempDir(), "input.bundle")
	if err := os.WriteFile(name, out.Bytes(), 0o600); err != nil {
		f.t.Fatal(err)
	}
	return name, out.Bytes()
}

// TestWriteWhatIsNew sends the second of two bundles without what the first held.
func TestWriteWhatIsNew(t *testing.T) {
	f := newFixture(t)
	first := f.grown("big", 1<<20)
	name, whole := f.sent(first, Part{})
	clone := filepath.Join(t.TempDir(), "clone")
	gittest.Run(t, f.repo.Dir, "clone", "-q", "-b", "main", "--", name, clone)
	next := f.grown("small", 100)
	name, part := f.sent(next, Part{Have: []string{first}})
	if len(whole) < 1<<20 || len(part) > 4096 {
		t.Errorf("the first bundle has %d bytes, what is new %d", len(whole), len(part))
	}
	h, _, err := ReadHeader(bufio.NewReader(bytes.NewReader(part)))
	if err != nil || !slices.Equal(h.Prerequisites, []string{first}) {
		t.Errorf("prerequisites %v %v, want %s", h, err, first)
	}
	gittest.Run(t, clone, "bundle", "verify", "-q", name)
	gittest.Run(t, clone, "pull", "-q", "--ff-only", name, "main")
	if got := gittest.Run(t, clone, "rev-parse", "HEAD", "HEAD^{tree}"); got != gittest.Run(t, f.repo.Dir, "rev-parse", "HEAD", "HEAD^{tree}") {
		t.Errorf("the clone is at %s", got)
	}
	gittest.Run(t, clone, "fsck", "--strict")
	// git refuses a repository without the first one, which then takes all.
	other := filepath.Join(t.TempDir(), "other")
	gittest.Run(t, f.repo.Dir, "init", "-q", "-b", "main", other)
	if _, err := gittest.Try(other, "fetch", "-q", name, "main"); err == nil || !strings.Contains(err.Error(), "prerequisite") {
		t.Errorf("without what it builds on: %v", err)
	}
	name, _ = f.sent(next, Part{})
	gittest.Run(t, other, "pull", "-q", "--ff-only", name, "main")
}

// TestWriteTheEnd sends the end of a history, and takes back what was made on top of it.
func TestWriteTheEnd(t *testing.T) {
	f := newFixture(t)
	f.grown("big", 1<<20)
	gittest.Run(t, f.repo.Dir, "rm", "-q", "big")
	f.grown("small", 100)
	f.base = f.grown("smaller", 10)
	ends, err := f.repo.Ends(t.Context(), f.base, 2)
	if err != nil || len(ends) != 1 {
		t.Fatalf("%v %v", ends, err)
	}
	name, b := f.sent(f.base, Part{Ends: ends})
	if len(b) > 4096 {
		t.Errorf("it has %d bytes", len(b))
	}
	clone := filepath.Join(t.TempDir(), "clone")
	gittest.Run(t, f.repo.Dir, "init", "-q", "-b", "main", clone)
	write(t, filepath.Join(clone, ".git/shallow"), ends[0]+"\n")
	gittest.Run(t, clone, "pull", "-q", name, "main")
	gittest.Run(t, clone, "fsck", "--strict")
	if got := gittest.Run(t, clone, "rev-list", "--count", "HEAD"); got != "2" {
		t.Errorf("%s commits", got)
	}
	write(t, filepath.Join(clone, "new"), "new\n")
	gittest.Run(t, clone, "add", "-A")
	gittest.Run(t, clone, "commit", "-q", "-m", "new")
	for _, what := range []string{f.base + "..HEAD", "HEAD"} { // also one that calls itself whole
		out := filepath.Join(t.TempDir(), "out.bundle")
		gittest.Run(t, clone, "bundle", "create", "-q", out, what)
		b, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		c, err := f.check(b, Caps{})
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if err := c.Take(t.Context(), f.repo, "refs/hutch/box"); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	if got := gittest.Run(t, f.repo.Dir, "rev-list", "--count", "refs/hutch/box"); got != "5" {
		t.Errorf("%s commits came back together, want 5", got)
	}
	gittest.Run(t, f.repo.Dir, "fsck", "--strict")
}

// TestShallowOfTheUser sends and takes back where the user's own repository is shallow.
func TestShallowOfTheUser(t *testing.T) {
	whole := newFixture(t)
	whole.grown("second", 10)
	f := whole.shallow()
	ends, err := f.repo.Ends(t.Context(), f.base, 0)
	if err != nil || !slices.Equal(ends, []string{f.base}) {
		t.Fatalf("%v %v", ends, err)
	}
	name, _ := f.sent(f.base, Part{Ends: ends})
	clone := filepath.Join(t.TempDir(), "clone")
	gittest.Run(t, f.repo.Dir, "init", "-q", "-b", "main", clone)
	write(t, filepath.Join(clone, ".git/shallow"), ends[0]+"\n")
	gittest.Run(t, clone, "pull", "-q", name, "main")
	write(t, filepath.Join(clone, "new"), "new\n")
	gittest.Run(t, clone, "add", "-A")
	gittest.Run(t, clone, "commit", "-q", "-m", "new")
	out := filepath.Join(t.TempDir(), "out.bundle")
	gittest.Run(t, clone, "bundle", "create", "-q", out, f.base+"..HEAD")
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	c, err := f.check(b, Caps{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Take(t.Context(), f.repo, "refs/hutch/box"); err != nil {
		t.Fatal(err)
	}
	if err := f.repo.FastForward(t.Context(), c.Commit); err != nil {
		t.Fatal(err)
	}
	gittest.Run(t, f.repo.Dir, "fsck", "--strict")
}
