package gitguard

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestS4Parts(t *testing.T) {
	dir := t.TempDir()
	for _, p := range []string{".git/hooks/x", ".git/config", "a/b/.git/config", "sub/.git", "bare/HEAD", "bare/objects/x", "bare/refs/x", "src/HEAD"} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(p)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, p), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for mode, want := range map[string][]Part{
		ReadOnly: {{".git", true}, {"a", false}, {"a/b", false}, {"a/b/.git", true}, {"bare", true}, {"sub", false}, {"sub/.git", true}},
		Writable: {{".git", false}, {".git/config", true}, {".git/hooks", true}, {"a", false}, {"a/b", false}, {"a/b/.git", false},
			{"a/b/.git/config", true}, {"bare", false}, {"sub", false}, {"sub/.git", true}},
	} {
		got, err := Parts(dir, mode)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", mode, err, diff)
		}
	}
	if err := os.Symlink("..", filepath.Join(dir, "src/.git")); err != nil {
		t.Fatal(err)
	}
	if _, err := Parts(dir, ReadOnly); err == nil {
		t.Error("a .git that is a symbolic link was taken")
	}
}
