package crash

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hutch-run/hutch/internal/podmantest"
	"github.com/hutch-run/hutch/plugins/e2b/e2btest"
	"github.com/hutch-run/hutch/test/e2e"
)

// cells are those that each run of the tests has time for; make soak tries all (HUTCH_TEST_EVERYTHING=1).
func cells(_, event string) bool {
	return os.Getenv("HUTCH_TEST_EVERYTHING") != "" || slices.Contains([]string{"two signals", "SIGKILL of hutch", "SIGKILL of the backend"}, event)
}

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
				l.Holders, l.Git = holders, true
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
		u.image = podmantest.Busybox(t)
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
		u.life(`backend "e2b" {}`).Run(t)
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
	return &e2e.Life{Cell: cells, Backend: block, Base: filepath.Dir(u.home), Home: filepath.Join(u.home, "hutch"), Work: u.work, Runtime: u.runtime, Tmp: u.tmp,
		Command: u.command, Traces: u.traces}
}
