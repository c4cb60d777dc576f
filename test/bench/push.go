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

// pushBranch compares a push of a branch with what git alone takes to make a bundle and a clone of it. Both make a new clone
// each round; what they leave is removed between the rounds.
func pushBranch(b *bench) (h, base sample, err error) {
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
		cmd := exec.Command("sh", "-c", `git bundle create --quiet "$1/in.bundle" main && git clone --quiet --branch main "$1/in.bundle" "$1/clone"`, "sh", dir)
		c, err := b.inRepository(repo, cmd)
		return c, errors.Join(err, os.RemoveAll(dir))
	}
	h, base, err = interleave(b.rounds(30), hutch, plain)
	base.what = "git bundle create and git clone"
	return h, base, err
}

// inRepository is how long a command takes there. Processes of a lasting sandbox outlive it, so nobody's end is waited for.
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
	for i := range n {
		name := filepath.Join(dir, fmt.Sprintf("d%03d", i/50), fmt.Sprintf("f%05d.go", i))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return "", err
		}
		text := fmt.Sprintf("package d%03d\n\n// %d\n%s", i/50, i, strings.Repeat("\tline of a source file, as there are many of them\n", 40))
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "plan.md"), []byte("do nothing\n"), 0o644); err != nil {
		return "", err
	}
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"config", "user.name", "bench"}, {"config", "user.email", "bench@example.com"}, {"add", "-A"}, {"commit", "-q", "-m", "one"}, {"repack", "-adq"}} {
		if _, err := b.inRepository(dir, exec.Command("git", args...)); err != nil {
			return "", err
		}
	}
	return dir, nil
}
