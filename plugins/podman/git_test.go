package main

import (
	"context"
	"strings"
	"testing"

	"github.com/hutch-run/hutch/internal/gitattack"
	"github.com/hutch-run/hutch/internal/podmantest"
	"github.com/hutch-run/hutch/sdk"
)

// TestS4SharedGit attacks the repositories of a shared workspace, and uses them.
func TestS4SharedGit(t *testing.T) {
	t.Parallel()
	b := newBackend()
	shared := func(t *testing.T, git string) (*sandbox, string) {
		dir := gitattack.Project(t)
		c := *config(t)
		c.Image, c.Git = podmantest.Git(t), git
		return newSandbox(t, b, sdk.Spec{Config: &c, Network: sdk.NetworkNone, Workspace: sdk.Workspace{Source: dir, Mode: sdk.WorkspaceShared}}), dir
	}
	t.Run("S4 read-only", func(t *testing.T) {
		s, dir := shared(t, "readonly")
		got := must(t, s, "echo x > file && git status --short file && git log --format=%s && git diff && git -C sub status --short && ! git commit -q --allow-empty -m no")
		if got != "?? file\nsecond\nfirst\n" {
			t.Errorf("git reads %q", got)
		}
		for name, script := range gitattack.Attacks {
			if r := sh(t, s, script); gitattack.Ran(dir) {
				t.Fatalf("%s: the host's git ran the program: %s", name, r.err)
			}
		}
	})
	t.Run("S4 writable", func(t *testing.T) {
		s, dir := shared(t, "writable")
		must(t, s, "git -c user.name=n -c user.email=e commit -q --allow-empty -m third && ! echo x >> .git/config && ! touch .git/hooks/x")
		if got := gitattack.Git(t, dir, "log", "-1", "--format=%s"); strings.TrimSpace(got) != "third" {
			t.Errorf("the host's last commit is %q", got)
		}
	})
	t.Run("S4 attach", func(t *testing.T) { // whatever commands have made
		spec := private(t, gitattack.Project(t))
		spec.Workspace.Mode = sdk.WorkspaceShared
		s, h, err := makeSandbox(t, b, spec, kept)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := b.Destroy(context.Background(), h); err != nil {
				t.Error(err)
			}
		})
		must(t, s, "mkdir x && ln -s .. x/.git")
		s.leave()
		found, err := newBackend().Attach(t.Context(), h)
		if err != nil {
			t.Fatal(err)
		}
		must(t, found.(*sandbox), "true")
	})
}
