package gitguard

import (
	"crypto/sha1"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/internal/gitattack"
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
		link := filepath.Join(t.TempDir(), "link") // as users may name the workspace
		if err := os.Symlink(dir, link); err != nil {
			t.Fatal(err)
		}
		got, err := Parts(link, mode)
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

func TestS4Refused(t *testing.T) {
	bare := t.TempDir()
	for _, p := range []string{"HEAD", "objects", "refs", "config"} {
		if err := os.Mkdir(filepath.Join(bare, p), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Parts(bare, ReadOnly); err == nil {
		t.Error("a workspace that is a repository's directory was taken")
	}
	if got, err := Parts(bare, Writable); err != nil || len(got) != 1 || got[0] != (Part{"config", true}) {
		t.Errorf("writable: %v %v", got, err)
	}
	project := gitattack.Project(t)
	got, err := Parts(project, ReadOnly)
	if err != nil || !slices.Contains(got, Part{"lib", true}) || slices.Contains(got, Part{"sub", true}) {
		t.Errorf("submodules: %v %v", got, err)
	}
	if err := os.Remove(filepath.Join(project, "lib")); err != nil {
		t.Fatal(err)
	}
	if _, err := Parts(project, ReadOnly); err == nil {
		t.Error("a submodule without a directory was taken")
	}
	if err := os.WriteFile(filepath.Join(project, ".git/index"), []byte("DIRC"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Parts(project, ReadOnly); err == nil {
		t.Error("an index that cannot be read was taken")
	}
}

// FuzzParts reads a workspace whose .git file and index hold anything: what is to be mounted is inside of it.
func FuzzParts(f *testing.F) {
	entry := func(mode uint32, path string) []byte {
		e := append(make([]byte, 24), byte(mode>>24), byte(mode>>16), byte(mode>>8), byte(mode))
		e = append(append(e, make([]byte, 12+sha1.Size)...), 0, byte(len(path)))
		return append(append(e, path...), make([]byte, 8-(62+len(path))%8)...)
	}
	f.Add("gitdir: ../.git/modules/sub\n", entry(0o160000, "lib"))
	f.Add("gitdir: ", entry(0o160000, "../outside"))
	f.Add("gitdir: /etc/passwd", entry(0o160000, "link"))
	f.Add("gitdir: \x00\n\n", entry(0o160000, ".git"))
	f.Add("x", entry(0o160000, "a/../../outside"))
	top := f.TempDir()
	dir := filepath.Join(top, "workspace")
	for _, d := range []string{"lib", "sub", ".git", "../outside"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			f.Fatal(err)
		}
	}
	if err := os.Symlink("../outside", filepath.Join(dir, "link")); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, dotGit string, entry []byte) {
		index := append([]byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x01"), entry...)
		sum := sha1.Sum(index)
		for name, data := range map[string][]byte{".git/index": append(index, sum[:]...), "sub/.git": []byte(dotGit)} {
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for _, mode := range []string{ReadOnly, Writable} {
			parts, err := Parts(dir, mode)
			if err != nil {
				continue
			}
			if !slices.Contains(parts, Part{"sub/.git", true}) {
				t.Errorf("%s: a .git file is not guarded: %+v", mode, parts)
			}
			for _, p := range parts {
				real, err := filepath.EvalSymlinks(filepath.Join(dir, p.Path))
				if err != nil || !strings.HasPrefix(real, dir+"/") {
					t.Errorf("%s: %q is outside of the workspace: %v", mode, p.Path, err)
				}
			}
		}
	})
}
