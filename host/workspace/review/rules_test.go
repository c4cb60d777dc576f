package review

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/host/judge"
)

// TestRefusals makes one change in a sandbox that must be refused, with the flag that allows it or "" for none.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name    string
		sandbox func(f *fixture)
		path    string
		rule    judge.Rule
		flag    string
	}{
		{"a git hook", func(f *fixture) { f.write(".git/hooks/pre-commit=#!") }, ".git/hooks/pre-commit", judge.Git, "--allow-git"},
		{"git's settings", func(f *fixture) { f.write(".git/config=[alias]") }, ".git/config", judge.Git, "--allow-git"},
		{"a nested repository's settings", func(f *fixture) { f.write("vendor/x/.git/config=[core]") }, "vendor/x/.git/config", judge.Git, "--allow-git"},
		{"git in capitals", func(f *fixture) { f.write("sub/.GIT/config=x") }, "sub/.GIT/config", judge.Git, "--allow-git"},
		{"git with a character that HFS ignores", func(f *fixture) { f.write(".g\u200cit/config=x") }, ".g\u200cit/config", judge.Git, "--allow-git"},
		{"git as DOS called it", func(f *fixture) { f.write("GIT~1/config=x") }, "GIT~1/config", judge.Git, "--allow-git"},
		{"the file that names a repository", func(f *fixture) { f.write("sub/.git=gitdir: ../x") }, "sub/.git", judge.Git, "--allow-git"},
		{"git deleted", func(f *fixture) { f.remove(".git") }, ".git/config", judge.Git, "--allow-git"},
		{"a bare repository", func(f *fixture) { f.write("b/HEAD=ref", "b/objects/", "b/refs/", "b/config=[core]") }, "b/config", judge.Git, "--allow-git"},
		{"the project as a bare repository", func(f *fixture) { f.write("HEAD=ref", "objects/", "refs/", "hooks/post-checkout=x") }, "hooks/post-checkout", judge.Git, "--allow-git"},
		{"S2 a repository split by commondir", func(f *fixture) {
			f.write("b/HEAD=ref: refs/heads/x", "b/commondir=../c", "b/config.worktree=[core]", "c/config=[core]", "c/objects/", "c/refs/")
		}, "b/config.worktree", judge.Git, "--allow-git"},
		{"S2 the rest of one that is there in parts", func(f *fixture) { f.write("parts/commondir=../c") }, "parts/commondir", judge.Git, "--allow-git"},
		{"S12 another version control's settings", func(f *fixture) { f.write(".hg/hgrc=[hooks]") }, ".hg/hgrc", judge.Tools, "--allow-tools"},
		{"an editor's tasks", func(f *fixture) { f.write("sub/.vscode/tasks.json={}") }, "sub/.vscode/tasks.json", judge.Tools, "--allow-tools"},
		{"direnv", func(f *fixture) { f.write(".envrc=rm -rf ~") }, ".envrc", judge.Tools, "--allow-tools"},
		{"a coding agent's hooks", func(f *fixture) { f.write(".Claude/settings.json={}") }, ".Claude/settings.json", judge.Tools, "--allow-tools"},
		{"a new executable", func(f *fixture) { f.write("tool*=#!") }, "tool", judge.Exec, "--allow-exec"},
		{"a file that becomes executable", func(f *fixture) { os.Chmod(f.merged+"/file", 0o755) }, "file", judge.Exec, "--allow-exec"},
		{"a set-user-id bit", func(f *fixture) { unix.Chmod(f.merged+"/file", 0o4644) }, "file", judge.SetID, "--allow-setid"},
		{"a set-group-id bit on a directory", func(f *fixture) { unix.Chmod(f.merged+"/sub", 0o2755) }, "sub", judge.SetID, "--allow-setid"},
		{"a file for everybody to write", func(f *fixture) { os.Chmod(f.merged+"/file", 0o666) }, "file", judge.WorldWritable, "--allow-world-writable"},
		{"an absolute link", func(f *fixture) { f.write("link->/nonexistent/of-the-host") }, "link", judge.Links, "--allow-links"},
		{"a link that leads out", func(f *fixture) { f.write("sub/link->../../x") }, "sub/link", judge.Links, "--allow-links"},
		{"a link up through a link", func(f *fixture) { f.write("sub/deep/up->..", "l->sub/deep/up/../x") }, "l", judge.Links, "--allow-links"},
		{"a name in another case", func(f *fixture) { f.write("FILE=x") }, "FILE", judge.Collisions, "--allow-collisions"},
		{"two new names that are one", func(f *fixture) { f.write("caf\u00e9=1", "cafe\u0301=2") }, "caf\u00e9", judge.Collisions, "--allow-collisions"},
		{"a directory in another case", func(f *fixture) { f.write("SUB/x=1") }, "SUB", judge.Collisions, "--allow-collisions"},
		{"a FIFO", func(f *fixture) { unix.Mkfifo(f.merged+"/fifo", 0o644) }, "fifo", judge.Special, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, "file=f", "sub/x=1", ".git/config=[core]", ".git/HEAD=ref", "parts/HEAD=ref")
			c.sandbox(f)
			f.seal()
			before := pictureOf(f.project, true)
			r := f.open()
			var got []judge.Rule
			for _, x := range r.Changes {
				if x.Path == c.path {
					for _, refusal := range x.Refused {
						got = append(got, refusal.Rule)
					}
				}
			}
			if d := cmp.Diff([]judge.Rule{c.rule}, got); d != "" {
				t.Fatalf("%q is refused for (-want +got):\n%s", c.path, d)
			}
			if c.rule.Flag() != c.flag {
				t.Errorf("the flag is %q, want %q", c.rule.Flag(), c.flag)
			}
			_, err := f.apply(r, Policy{})
			var blocked *BlockedError
			if !errors.As(err, &blocked) || len(blocked.Refused) == 0 {
				t.Errorf("the apply gives %v, want a BlockedError", err)
			}
			if pictureOf(f.project, true) != before {
				t.Error("the refused apply changed the project")
			}
			if _, err := f.apply(f.open(), everything()); c.flag == "" && !errors.As(err, &blocked) {
				t.Errorf("with all flags it gives %v, want a refusal still", err)
			} else if c.flag != "" {
				if err != nil {
					t.Fatalf("with its flag: %v", err)
				}
				if pictureOf(f.project, false) != pictureOf(f.merged, false) {
					t.Error("with its flag it was not applied")
				}
			}
		})
	}
}

func TestNotRefused(t *testing.T) {
	f := newFixture(t, "tool*=1", "old/tool*=same content", "link->/nonexistent/of-the-host", ".gitignore=x", "github/x=1", "setgid/")
	if err := unix.Chmod(f.project+"/setgid", 0o2755); err != nil {
		t.Fatal(err)
	}
	unix.Chmod(f.merged+"/setgid", 0o2755)
	f.rebase()
	f.write("tool*=2", ".gitignore=y", "github/x=2", "HEAD=not a repository", "config=c", "setgid/sub/x=1", "in->sub/../x", "up->github/x", "new/tool*=same content")
	os.Remove(f.merged + "/in")
	f.remove("old")
	unix.Chmod(f.merged+"/setgid/sub", 0o2755)
	f.seal()
	for _, c := range f.open().Changes {
		if len(c.Refused) > 0 {
			t.Errorf("%q is refused: %+v", c.Path, c.Refused)
		}
	}
}

// TestGitIndexIsLeft is about the file in which git of the sandbox notes the sandbox's inodes, whenever somebody looks
// at the status.
func TestGitIndexIsLeft(t *testing.T) {
	f := newFixture(t, ".git/index=host", "a=1")
	f.write(".git/index=sandbox", "a=2")
	f.seal()
	r := f.open()
	p, err := r.Plan(t.Context(), r.All(), Policy{})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"a"}, p.Paths()); d != "" || len(p.Left) != 1 {
		t.Errorf("%d left, taken (-want +got):\n%s", len(p.Left), d)
	}
}

// TestHostileUpper puts into the sandbox's layer what no overlay would: reading must neither hang nor follow.
func TestHostileUpper(t *testing.T) {
	f := newFixture(t, "a=1")
	secret := filepath.Join(filepath.Dir(f.project), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(secret, f.upper+"/hard"); err != nil {
		t.Fatal(err)
	}
	big, err := os.Create(f.upper + "/giant")
	if err != nil {
		t.Fatal(err)
	}
	if err := big.Truncate(1 << 40); err != nil {
		t.Skip("the file system has no sparse files of this size: ", err)
	}
	big.Close()
	unix.Mkfifo(f.upper+"/fifo", 0o644)
	r, err := Open(t.Context(), f.subject(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var b strings.Builder
	if err := r.Unified(t.Context(), &b, Style{}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "secret") {
		t.Error("the content of a file outside is shown")
	}
	for _, want := range []string{"too large to show: it has 1099511627776 bytes", "cannot be read in the sandbox: it has 2 links"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, b.String())
		}
	}
	refused := map[string]judge.Rule{}
	for _, c := range f.open().Changes {
		for _, x := range c.Refused {
			refused[c.Path] = x.Rule
		}
	}
	if d := cmp.Diff(map[string]judge.Rule{"fifo": judge.Special, "giant": judge.Unreadable, "hard": judge.Unreadable}, refused); d != "" {
		t.Errorf("refused (-want +got):\n%s", d)
	}
}

// TestSwappedForLinks puts a symbolic link that leads out of the project in the place of a directory, and of a target,
// at every point of an apply. Nothing outside may be touched, whatever becomes of the apply.
func TestSwappedForLinks(t *testing.T) {
	for _, swap := range []string{"dir", "dir/sub", "dir/edit", "dir/gone", "dir/new"} {
		for n := 1; ; n++ {
			f := newFixture(t, "dir/edit=1", "dir/gone=1", "dir/sub/edit=1", "z=1")
			outside := filepath.Join(filepath.Dir(f.project), "outside")
			plant(t, outside, "edit=keep", "gone=keep", "sub/edit=keep", "target=keep")
			f.write("dir/edit=2", "dir/new=2", "dir/sub/edit=2", "dir/sub/new=2", "z=2")
			f.remove("dir/gone")
			f.seal()
			before := pictureOf(outside, true)
			seen, done := 0, false
			f.ledger.at = func(string) {
				if seen++; seen != n {
					return
				}
				done = true
				path := filepath.Join(f.project, swap)
				os.Rename(path, filepath.Join(filepath.Dir(f.project), "aside"))
				to := outside
				if swap != "dir" {
					to = filepath.Join(outside, "target")
				}
				if swap == "dir/sub" {
					to = filepath.Join(outside, "sub")
				}
				if err := os.Symlink(to, path); err != nil {
					t.Fatal(err)
				}
			}
			_, err := f.apply(f.open(), Policy{})
			if d := cmp.Diff(before, pictureOf(outside, true)); d != "" {
				t.Fatalf("%s swapped at point %d, the outside changed (%v):\n%s", swap, n, err, d)
			}
			if !done {
				if err != nil {
					t.Fatal(err)
				}
				break
			}
		}
	}
}

// TestChangedUnderTheHand changes a target in the moment before it is replaced. The change must survive.
func TestChangedUnderTheHand(t *testing.T) {
	for n := 1; ; n++ {
		f := newFixture(t, "edit=1", "gone=1")
		f.write("edit=2", "new=2")
		f.remove("gone")
		f.seal()
		r := f.open()
		seen, at := 0, ""
		f.ledger.at = func(what string) {
			if seen++; seen == n {
				at = what
				for _, name := range []string{"edit", "gone", "new"} {
					if strings.HasSuffix(what, " "+name) && !strings.HasPrefix(what, "placed") && !strings.HasPrefix(what, "removing") {
						os.Remove(filepath.Join(f.project, name))
						plant(t, f.project, name+"=theirs")
					}
				}
			}
		}
		_, err := f.apply(r, Policy{})
		if at == "" {
			return
		}
		for _, name := range []string{"edit", "gone", "new"} {
			if !strings.HasSuffix(at, " "+name) || strings.HasPrefix(at, "placed") || strings.HasPrefix(at, "removing") {
				continue
			}
			if b, _ := os.ReadFile(filepath.Join(f.project, name)); string(b) != "theirs" {
				t.Errorf("changed at %q, it has %q now (%v)", at, b, err)
			}
			if err == nil {
				t.Errorf("changed at %q, the apply says that it went well", at)
			}
		}
	}
}
