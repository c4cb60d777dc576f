package agents

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// git runs git in the project as its user, and returns what it prints.
func (w *world) git(args ...string) string {
	w.t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=Me", "-c", "user.email=me@example.org"}, args...)...)
	cmd.Dir = w.project
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// TestCommits has an agent commit, leave something in no commit, and litter in .git: the commits are pulled, the rest is
// applied, and the litter and what git itself wrote there are in no review.
func TestCommits(t *testing.T) {
	w := scripted(t, `
git config user.name Agent && git config user.email agent@example.org || exit 9
echo two >> a.txt && git commit -qam "change $(ls | wc -l) files" || exit 9
echo three >> a.txt && git commit -qam "`+"\x1b[31m"+`again" || exit 9
mkdir -p .git/opencode && echo x > .git/opencode/litter
echo "touch /tmp/pwned" > .git/hooks/post-merge && chmod 755 .git/hooks/post-merge
echo new > new.txt
`)
	w.git("init", "-q", "-b", "main")
	if err := os.WriteFile(filepath.Join(w.project, "a.txt"), []byte("one\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	w.git("add", ".")
	w.git("commit", "-qm", "first")
	first := w.git("rev-parse", "HEAD")

	_, errs := w.hutch(0, "agent", "mine", "-p", "x")
	for _, want := range []string{"2 commits in sandbox mine-my-shop:", "change 3 files", `\x1b[31magain`, "hutch pull mine-my-shop takes them onto main", "2 changes in sandbox mine-my-shop"} {
		if !strings.Contains(errs, want) {
			t.Errorf("it does not say %q: %s", want, errs)
		}
	}
	if out, _ := w.hutch(0, "diff", "mine-my-shop", "--stat"); strings.Contains(out, ".git") || !strings.Contains(out, "2 paths changed") {
		t.Errorf("the difference is %s", out)
	}
	if out, _ := w.hutch(0, "agent", "ls"); !strings.Contains(out, "commits") {
		t.Errorf("hutch agent ls says %s", out)
	}
	if w.git("rev-parse", "HEAD") != first || w.git("status", "--short") != "" {
		t.Error("the project was changed without review")
	}
	if out, _ := w.hutch(0, "pull", "mine-my-shop"); !strings.Contains(out, "2 commits, 1 file changed") {
		t.Errorf("the pull says %s", out)
	}
	if got := w.git("log", "--format=%an", first+".."); got != "Agent\nAgent" || w.git("status", "--short") != "" {
		t.Errorf("the branch has %q, and the work tree %q", got, w.git("status", "--short"))
	}
	w.hutch(0, "apply", "mine-my-shop")
	if got := w.git("status", "--short"); got != "?? new.txt" {
		t.Errorf("after the apply there is %q", got)
	}
	w.hutch(1, "pull", "mine-my-shop")
	w.hutch(0, "agent", "mine", "--forget") // nothing of it would be lost

	// The user goes on meanwhile: the commits are kept as a ref. With --apply they come by themselves.
	w.hutch(0, "agent", "mine", "-p", "x", "-q")
	w.git("commit", "-q", "--allow-empty", "-m", "meanwhile")
	if _, errs := w.hutch(1, "pull", "mine-my-shop"); !strings.Contains(errs, "git merge refs/hutch/mine-my-shop") {
		t.Errorf("the pull says %s", errs)
	}
	w.hutch(125, "agent", "mine", "--forget")
	w.git("merge", "-q", "refs/hutch/mine-my-shop", "-m", "merged")
	w.hutch(0, "rm", "mine-my-shop")
	out, errs := w.hutch(0, "agent", "mine", "-p", "x", "--apply", "on-success")
	if !strings.Contains(out, "main: ") || !strings.Contains(out, "2 commits") || w.git("status", "--short", "a.txt") != "" {
		t.Errorf("it said %s%s; status %q", out, errs, w.git("status", "--short"))
	}
}
