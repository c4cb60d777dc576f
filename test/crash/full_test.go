package crash

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/test/e2e"
)

// TestL10FullDisk fills the disk of the store, of the project and of temporary files under each command that writes. It
// says so, leaves nothing half-written, and does its work once there is room.
func TestL10FullDisk(t *testing.T) {
	e2e.Require(t, "bwrap")
	e2e.Require(t, "git")
	if os.Getuid() != 0 {
		t.Skip("a small file system can be mounted by root alone")
	}
	u := newUser(t, 0)
	for _, dir := range []string{u.home, u.work, u.tmp} {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=32m,mode=700"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	}
	sh := func(script string) string {
		t.Helper()
		cmd := exec.Command("sh", "-ec", script)
		cmd.Dir, cmd.Env = u.work, append(u.command().Env, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=n", "GIT_AUTHOR_EMAIL=e", "GIT_COMMITTER_NAME=n", "GIT_COMMITTER_EMAIL=e")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", script, err, out)
		}
		return string(out)
	}
	sh(`mkdir project repo; cd repo; git init -q -b main; echo plan > plan.md; git add .; git commit -q -m first
		printf 'run "a" {\n  backend "bwrap" {}\n  command = ["true"]\n}\n' > ../push.hcl
		printf 'run "a" {\n  backend "bwrap" {}\n  workspace { source = "project" }\n  command = ["true"]\n}\n' > ../f.hcl`)
	u.hutch(t, 0, "create", "f.hcl", "--name", "box")
	u.hutch(t, 0, "exec", "box", "--", "sh", "-c", "for i in $(seq 50); do head -c 10000 /dev/urandom > f$i; done")
	repo := *u
	repo.work = filepath.Join(u.work, "repo")
	repo.hutch(t, 0, "push", "--name", "clone", "../push.hcl", "plan.md")
	u.hutch(t, 0, "exec", "clone", "--", "sh", "-c", "cd /workspace/*/ && head -c 1000000 /dev/urandom > big && git add big && git -c user.name=n -c user.email=e commit -q -m second")

	state := func() string { // of all that a user has
		return sh(`find project repo -type f ! -path '*/.git/*' | sort | xargs sha256sum; git -C repo rev-parse HEAD; git -C repo fsck --strict 2>&1; find repo/.git -name 'tmp_*'`)
	}
	for _, f := range []struct {
		name string
		full string // which disk is full
		in   *user
		args []string
	}{
		{"run", u.home, u, []string{"run", "-q", "f.hcl"}},
		{"create", u.home, u, []string{"create", "f.hcl", "--name", "new"}},
		{"exec", u.home, u, []string{"exec", "box", "--", "true"}},
		{"apply, store", u.home, u, []string{"apply", "box"}},
		{"apply, project", u.work, u, []string{"apply", "box"}},
		{"pull, temporary files", u.tmp, &repo, []string{"pull", "clone"}},
		{"pull, repository", u.work, &repo, []string{"pull", "clone"}},
	} {
		t.Run(f.name, func(t *testing.T) {
			before, boxes := state(), u.hutch(t, 0, "ps", "-q")
			ballast := filepath.Join(f.full, "ballast")
			fill(t, ballast)
			cmd := f.in.command(f.args...)
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			_ = cmd.Run()
			if code := cmd.ProcessState.ExitCode(); code <= 0 || !strings.Contains(out.String(), "no space left on device") && !strings.Contains(out.String(), "No space left on device") {
				t.Errorf("exit code %d\n%s", code, &out)
			}
			if err := os.Remove(ballast); err != nil {
				t.Fatal(err)
			}
			for _, left := range strings.Fields(sh("find $PWD/repo/.git -name 'tmp_*'")) { // git's, of which hutch says who removes it
				if !strings.Contains(out.String(), left+", which git prune") {
					t.Errorf("nothing is said of %s:\n%s", left, &out)
				}
				sh("git -C repo prune --expire=now")
			}
			u.hutch(t, 0, "gc")
			if diff := cmp.Diff(before, state()); diff != "" {
				t.Errorf("half-written:\n%s", diff)
			}
			if now := u.hutch(t, 0, "ps", "-q"); now != boxes {
				t.Errorf("sandboxes: %q, before %q", now, boxes)
			}
			if said := u.hutch(t, 0, "audit", "verify"); strings.Contains(said, "died") {
				t.Errorf("audit says that somebody died:\n%s", said)
			}
			if f.name != "apply, store" && f.name != "pull, temporary files" { // the next cell does the same
				f.in.hutch(t, 0, f.args...)
			}
		})
	}
	u.hutch(t, 0, "rm", "-f", "box", "clone", "new")
	u.nothingForGC(t)
}

// fill writes a file until no byte is left.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}
