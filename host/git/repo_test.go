package git

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hutch-run/hutch/internal/gittest"
)

// newRepo is a repository with one commit on main.
func newRepo(t *testing.T) *Repo {
	t.Helper()
	gittest.Need(t)
	dir := t.TempDir()
	write(t, dir, map[string]string{"a": "a\n", "b": "b\n", "dir/c": "c\n"})
	gittest.Commit(t, dir)
	r, err := Open(t.Context(), filepath.Join(dir, "dir"))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOpenFindsNothing(t *testing.T) {
	r := newRepo(t)
	for _, dir := range []string{t.TempDir(), filepath.Join(r.Dir, ".git")} {
		if _, err := Open(t.Context(), dir); !errors.Is(err, ErrNoRepository) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	gittest.Run(t, r.Dir, "checkout", "-q", "--detach")
	if _, _, err := r.Branch(t.Context()); !errors.Is(err, ErrDetached) {
		t.Errorf("detached: %v", err)
	}
	gittest.Run(t, r.Dir, "checkout", "-q", "--orphan", "none")
	if b, _, err := r.Branch(t.Context()); !errors.Is(err, ErrUnborn) || b != "none" {
		t.Errorf("unborn: %q %v", b, err)
	}
}

// dirtied changes the work tree in every way, and stages a part of it.
func dirtied(t *testing.T, r *Repo) {
	t.Helper()
	write(t, r.Dir, map[string]string{"a": "a\nmine\n", "staged": "s\n", "untracked": "u\n"})
	if err := os.Remove(filepath.Join(r.Dir, "b")); err != nil {
		t.Fatal(err)
	}
	gittest.Run(t, r.Dir, "add", "staged")
}

// TestSnapshot has what is not committed in a commit, and nothing of the user's touched.
func TestSnapshot(t *testing.T) {
	r := newRepo(t)
	_, head, err := r.Branch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dirtied(t, r)
	state := func() string {
		return gittest.Run(t, r.Dir, "status", "--porcelain") + "\n" + gittest.Run(t, r.Dir, "for-each-ref") + "\n" + gittest.Run(t, r.Dir, "reflog")
	}
	before := state()
	commit, err := r.Snapshot(t.Context(), head, "message")
	if err != nil {
		t.Fatal(err)
	}
	if after := state(); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	if got := gittest.Run(t, r.Dir, "ls-tree", "-r", "--name-only", commit); got != "a\ndir/c\nstaged\nuntracked" {
		t.Errorf("it has\n%s", got)
	}
	if got := gittest.Run(t, r.Dir, "log", "--format=%P %s", "-1", commit); got != head+" message" {
		t.Errorf("it is %q", got)
	}
	for want, change := range map[bool]map[string]string{true: {}, false: {"untracked": "other\n"}} {
		write(t, r.Dir, change)
		if same, err := r.SameTree(t.Context(), commit); same != want || err != nil {
			t.Errorf("the same: %v %v", same, err)
		}
		if !want {
			write(t, r.Dir, map[string]string{"untracked": "u\n"})
		}
	}
}

// TestAdvance moves the branch over what was not committed and has come back in commits.
func TestAdvance(t *testing.T) {
	r := newRepo(t)
	branch, head, err := r.Branch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dirtied(t, r)
	base, err := r.Snapshot(t.Context(), head, "sent")
	if err != nil {
		t.Fatal(err)
	}
	// What the sandbox did of it.
	other := t.TempDir()
	gittest.Run(t, other, "clone", "-q", r.Dir, "clone")
	other = filepath.Join(other, "clone")
	gittest.Run(t, other, "fetch", "-q", r.Dir, "+"+base+":refs/heads/work")
	gittest.Run(t, other, "checkout", "-q", "work")
	write(t, other, map[string]string{"a": "a\nmine\ntheirs\n", "new": "n\n", "untracked": "u\nmore\n"})
	gittest.Run(t, other, "rm", "-q", "staged")
	gittest.Run(t, other, "add", "-A")
	gittest.Run(t, other, "commit", "-q", "-m", "done")
	commit := gittest.Run(t, other, "rev-parse", "HEAD")
	gittest.Run(t, r.Dir, "fetch", "-q", other, "work:refs/hutch/box")

	// A file that changed since is not overwritten, and all is as it was.
	write(t, r.Dir, map[string]string{"untracked": "changed since\n"})
	if err := r.Advance(t.Context(), branch, head, base, commit); err == nil {
		t.Fatal("it overwrote what changed since")
	}
	if got, _ := os.ReadFile(filepath.Join(r.Dir, "untracked")); string(got) != "changed since\n" {
		t.Errorf("the file is %q", got)
	}
	if got := gittest.Run(t, r.Dir, "rev-parse", "HEAD"); got != head {
		t.Errorf("the branch is at %s", got)
	}
	write(t, r.Dir, map[string]string{"untracked": "u\n"})
	if err := r.Advance(t.Context(), branch, head, base, commit); err != nil {
		t.Fatal(err)
	}
	if got := gittest.Run(t, r.Dir, "rev-parse", "main"); got != commit {
		t.Errorf("the branch is at %s, not at %s", got, commit)
	}
	if got := gittest.Run(t, r.Dir, "status", "--porcelain"); got != "" {
		t.Errorf("the work tree is not clean:\n%s", got)
	}
	if got := gittest.Run(t, r.Dir, "ls-files"); got != "a\ndir/c\nnew\nuntracked" {
		t.Errorf("it has\n%s", got)
	}
}

// TestNothingOfTheUserRuns has hooks and programs in the repository's own settings, none of which may run.
func TestNothingOfTheUserRuns(t *testing.T) {
	r := newRepo(t)
	ran := filepath.Join(t.TempDir(), "ran")
	program := filepath.Join(r.Dir, "program")
	write(t, r.Dir, map[string]string{"program": "#!/bin/sh\ntouch " + ran + "\ncat\n", "a": "next\n"})
	if err := os.Chmod(program, 0o755); err != nil {
		t.Fatal(err)
	}
	_, head, err := r.Branch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	next, err := r.Snapshot(t.Context(), head, "next")
	if err != nil {
		t.Fatal(err)
	}
	gittest.Run(t, r.Dir, "checkout", "-q", "a")
	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	for _, hook := range []string{"post-merge", "post-checkout", "reference-transaction", "post-index-change", "pre-auto-gc", "fsmonitor"} {
		write(t, r.Dir, map[string]string{".git/hooks/" + hook: "#!/bin/sh\ntouch " + ran + "\n"})
		if err := os.Chmod(filepath.Join(r.Dir, ".git/hooks", hook), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, kv := range [][2]string{{"core.fsmonitor", ".git/hooks/fsmonitor"}, {"diff.external", ".git/hooks/fsmonitor"}, {"core.pager", ".git/hooks/fsmonitor"}, {"credential.helper", "!touch " + ran},
		{"filter.evil.smudge", "touch " + ran + "; cat"}, {"core.sshCommand", "touch " + ran}} {
		gittest.Run(t, r.Dir, "config", kv[0], kv[1])
	}
	if _, err := r.Status(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.FastForward(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Summarize(t.Context(), head, next); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("a program of the repository's settings ran")
	}
	write(t, r.Dir, map[string]string{".git/info/attributes": "a filter=evil\nb filter=unknown\n"})
	list, err := r.Filtered(t.Context(), []string{"a", "b", "dir/c"})
	if err != nil || !slices.Equal(list, []string{"a"}) {
		t.Errorf("filtered: %q %v", list, err)
	}
}

// TestIdentity has the user's own file named by GIT_CONFIG_GLOBAL, which counts as git has it count, unless it is one
// that a pull may bring.
func TestIdentity(t *testing.T) {
	r := newRepo(t)
	home := t.TempDir()
	write(t, home, map[string]string{".gitconfig": "[user]\n\tname = Home\n\temail = home@example.com\n", "other": "[user]\n\tname = Other\n"})
	write(t, r.Dir, map[string]string{"evil": "[user]\n\tname = Evil\n"})
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", home)
	for value, want := range map[string]string{filepath.Join(home, "other"): "Other ", "": " ", "evil": "Home home@example.com", "/dev/null": " "} {
		t.Setenv("GIT_CONFIG_GLOBAL", value)
		name, email, err := r.Identity(t.Context())
		if got := name + " " + email; got != want || err != nil {
			t.Errorf("GIT_CONFIG_GLOBAL=%q: %q %v, want %q", value, got, err, want)
		}
	}
	for value, want := range map[string]string{filepath.Join(home, ".gitconfig"): "Home <home@example.com>, hutch", "/dev/null": "hutch <hutch@localhost>, hutch"} {
		t.Setenv("GIT_CONFIG_GLOBAL", value)
		commit, err := r.Snapshot(t.Context(), "HEAD", "message")
		if err != nil {
			t.Fatal(err)
		}
		if got := gittest.Run(t, r.Dir, "log", "-1", "--format=%an <%ae>, %cn", commit); got != want {
			t.Errorf("with GIT_CONFIG_GLOBAL=%q the work is by %s, want %s", value, got, want)
		}
	}
}
