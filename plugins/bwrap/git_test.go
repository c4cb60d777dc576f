package main

import (
	"strings"
	"testing"

	"github.com/hutch-run/hutch/internal/gitattack"
	"github.com/hutch-run/hutch/sdk"
)

// TestSandboxS4SharedGit attacks the repositories of a shared workspace, and uses them.
func TestSandboxS4SharedGit(t *testing.T) {
	needBwrap(t)
	shared := func(t *testing.T, git string) (*sandbox, string) {
		dir := gitattack.Project(t)
		c := *configOf(&sdk.Spec{})
		c.Git = git
		return newSandbox(t, sdk.Spec{Config: &c, Workspace: sdk.Workspace{Source: dir, Mode: sdk.WorkspaceShared}}), dir
	}
	t.Run("S4 attacks", func(t *testing.T) {
		s, dir := shared(t, "readonly")
		for name, script := range gitattack.Attacks {
			if r := sh(t, s, script); gitattack.Ran(dir) {
				t.Fatalf("%s: the host's git ran the program: %s", name, r.err)
			}
		}
	})
	t.Run("S4 git reads", func(t *testing.T) {
		s, _ := shared(t, "readonly")
		r := sh(t, s, "echo x > file && git status --short file && git log --format=%s && git diff && git -C sub status --short && ! git commit -q --allow-empty -m no")
		if r.Code != 0 || r.out != "?? file\nsecond\nfirst\n" {
			t.Errorf("%+v %q %q", r.Exit, r.out, r.err)
		}
	})
	t.Run("S4 writable", func(t *testing.T) {
		s, dir := shared(t, "writable")
		r := sh(t, s, "git -c user.name=n -c user.email=e commit -q --allow-empty -m third && ! echo x >> .git/config && ! touch .git/hooks/x")
		if got := gitattack.Git(t, dir, "log", "-1", "--format=%s"); r.Code != 0 || strings.TrimSpace(got) != "third" {
			t.Errorf("%+v %q %q; the host's last commit is %q", r.Exit, r.out, r.err, got)
		}
	})
}
