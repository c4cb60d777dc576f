package crash

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/hutch-run/hutch/internal/podmantest"
	"github.com/hutch-run/hutch/plugins/e2b/e2btest"
	"github.com/hutch-run/hutch/test/e2e"
)

// TestLifeCycle interrupts each phase of a sandbox's life by each event on bwrap, podman and e2b.
func TestLifeCycle(t *testing.T) {
	holders := []string{"hutch-bwrap-holder", "/run/hutch-agent"}
	t.Run("bwrap", func(t *testing.T) {
		e2e.Require(t, "bwrap")
		for name, uid := range e2e.Users() {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				u := newUser(t, uid)
				l := u.life(`backend "bwrap" {}`)
				l.Holders = holders
				if uid == 0 {
					l.InAnotherBoot = u.inAnotherBoot(t)
				}
				l.Run(t)
			})
		}
	})
	t.Run("podman", func(t *testing.T) {
		u := newUser(t, os.Getuid())
		if os.Getuid() != 0 {
			u.ownStorage(t)
		}
		u.image = podmantest.Git(t)
		t.Cleanup(func() { // of a test that failed
			for _, name := range u.containers(t) {
				_ = exec.Command("podman", "rm", "--force", "--time=0", name).Run()
			}
		})
		l := u.life(`backend "podman" {}`)
		l.Holders = holders
		l.Run(t)
	})
	t.Run("e2b", func(t *testing.T) {
		t.Parallel()
		u := newUser(t, os.Getuid())
		u.env = e2btest.ForTest(t, e2btest.Options{}).Env()
		l := u.life(`backend "e2b" {}`)
		l.Without = map[string]string{"SIGKILL of the holder": "no process of this machine holds a sandbox of E2B"}
		l.Run(t)
	})
}

// inAnotherBoot is command as before a restart of the machine: with another boot id.
func (u *user) inAnotherBoot(t *testing.T) func(args ...string) *exec.Cmd {
	id := filepath.Join(t.TempDir(), "boot_id")
	if err := os.WriteFile(id, []byte("00000000-0000-4000-8000-000000000000\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return func(args ...string) *exec.Cmd {
		c := u.command(args...)
		c.Path, c.Args = "/usr/bin/unshare", append([]string{"unshare", "--mount", "--propagation", "slave", "sh", "-c",
			`mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"`, id}, c.Args...)
		return c
	}
}

// life is the matrix's view of a user.
func (u *user) life(block string) *e2e.Life {
	return &e2e.Life{Backend: block, Base: filepath.Dir(u.home), Home: filepath.Join(u.home, "hutch"), Work: u.work, Runtime: u.runtime, Tmp: u.tmp,
		Command: u.command, Traces: u.traces}
}
