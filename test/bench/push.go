package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// pushed is a run file for push, outside of the repository, whose command does nothing.
const pushed = "run \"bench\" {\n  backend \"bwrap\" {}\n  command = [\"true\"]\n}\n"

// pushBranch compares a push of a branch with what git alone takes to make a bundle and a clone of it. All make a new
// clone each round; what they leave is removed between the rounds.
func pushBranch(b *bench) (h, base sample, err error) {
	return b.push(`git bundle create --quiet "$1/in.bundle" main && git clone --quiet --branch main "$1/in.bundle" "$1/clone"`, "git bundle create and git clone")
}

// pushByHand compares it with all of its steps that somebody would type who wanted the same of git and bubblewrap: see
// that nothing is left out, make the bundle, clone it in a sandbox, run the command in one, and see there what is not
// committed. Nothing that does all of that is quicker.
func pushByHand(b *bench) (h, base sample, err error) {
	inside := func(argv ...string) string { return quoted(bwrap("DIR", argv...)) }
	return b.push(`test -z "$(git status --porcelain)" && git bundle create --quiet "$1/in.bundle" main && `+
		inside("git", "clone", "--quiet", "--branch", "main", "/workspace/in.bundle",
			"/workspace/clone")+" && "+inside("true")+" && "+
		inside("git", "-C", "/workspace/clone", "status", "--porcelain"),
		"git status, git bundle create, git clone, true and git status, the last three in bubblewrap")
}

// quoted is a command of the shell with the directory of a round in the place of DIR.
func quoted(argv []string) string {
	var b strings.Builder
	for _, a := range argv {
		if a == "DIR" {
			b.WriteString(` "$1"`)
		} else {
			b.WriteString(" '" + a + "'")
		}
	}
	return b.String()
}

// push compares a push with a script, whose first argument is a directory.
func (b *bench) push(script, what string) (h, base sample, err error) {
	n := 5000
	if b.quick {
		n = 500
	}
	repo, err := b.repository(n)
	if err != nil {
		return h, base, err
	}
	file := filepath.Join(b.tmp, "push.hcl")
	if err := os.WriteFile(file, []byte(pushed), 0o644); err != nil {
		return h, base, err
	}
	round := 0
	hutch := func() (cost, error) {
		round++
		name := fmt.Sprintf("bench-%d", round)
		cmd := exec.Command(b.hutch(), "push", "--name", name, file, "plan.md")
		c, err := b.inRepository(repo, cmd)
		_, rmErr := b.plain(b.hutch(), "rm", "-f", name)
		return c, errors.Join(err, rmErr)
	}
	plain := func() (cost, error) {
		round++
		dir := filepath.Join(b.tmp, fmt.Sprintf("clone-%d", round))
		if err := os.Mkdir(dir, 0o755); err != nil {
			return cost{}, err
		}
		c, err := b.inRepository(repo, exec.Command("sh", "-c", script, "sh", dir))
		return c, errors.Join(err, os.RemoveAll(dir))
	}
	h, base, err = interleave(b.rounds(30), hutch, plain)
	base.what = what
	return h, base, err
}

// inRepository is how long a command takes there. Processes of a persistent sandbox outlive it, so nobody's end is
// waited for.
func (b *bench) inRepository(repo string, cmd *exec.Cmd) (c cost, err error) {
	cmd.Dir, cmd.Env = repo, append(os.Environ(), "HUTCH_HOME="+b.home)
	start := time.Now()
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return cost{wall: time.Since(start)}, err
}

// repository is a clean one of n source files and a plan, on the branch main.
func (b *bench) repository(n int) (string, error) {
	dir := filepath.Join(b.tmp, "repository")
	if there(dir) {
		return dir, nil
	}
	old := time.Now().Add(-time.Hour)
	for i := range n {
		name := filepath.Join(dir, fmt.Sprintf("d%03d", i/50), fmt.Sprintf("f%05d.go", i))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return "", err
		}
		text := fmt.Sprintf("package d%03d\n\n// %d\n%s", i/50, i,
			strings.Repeat("\tline of a source file, as there are many of them\n", 40))
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return "", err
		}
		// Git reads a file again that is as young as the index: a project is older than that.
		if err := os.Chtimes(name, old, old); err != nil {
			return "", err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "plan.md"), []byte("do nothing\n"), 0o644); err != nil {
		return "", err
	}
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"config", "user.name", "bench"},
		{"config", "user.email", "bench@example.com"}, {"add", "-A"}, {"commit", "-q", "-m", "one"}, {"repack", "-adq"}} {
		if _, err := b.inRepository(dir, exec.Command("git", args...)); err != nil {
			return "", err
		}
	}
	return dir, nil
}
