package crash

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/internal/podmantest"
	"github.com/hutch-run/hutch/test/e2e"
)

// boxKills is how often hutch is killed at work on persistent sandboxes, for each user; containers, which take half a second
// to make, are killed less often.
const (
	boxKills       = 50
	containerKills = 20
)

// TestKilledAtSandboxes kills hutch with SIGKILL at random moments of create, exec, reset and rm. Afterwards, gc makes
// every sandbox whole or gone, those that are there work and have their files, and removing them leaves nothing.
func TestKilledAtSandboxes(t *testing.T) {
	e2e.Require(t, "bwrap")
	for name, uid := range e2e.Users() {
		t.Run(name, func(t *testing.T) { killedAtSandboxes(t, newUser(t, uid), "bwrap", boxKills) })
	}
}

// TestKilledAtContainers is the same with Podman, as the user who runs the test.
func TestKilledAtContainers(t *testing.T) {
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
	killedAtSandboxes(t, u, "podman", containerKills)
}

// ownStorage gives an ordinary user's Podman a storage beside the runtime directory that hutch has in these tests, for the
// rest of the test.
func (u *user) ownStorage(t *testing.T) {
	dir := filepath.Join(filepath.Dir(u.home), "s")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	own, err := podmantest.OwnStorage(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range own {
		name, value, _ := strings.Cut(kv, "=")
		t.Setenv(name, value)
	}
	t.Cleanup(func() {
		if err := podmantest.EndStorage(dir, os.Environ(), nil); err != nil {
			t.Error(err)
		}
	})
}

// containers are the names of all containers that were made for this user's store, running or not.
func (u *user) containers(t *testing.T) (names []string) {
	t.Helper()
	cmd := exec.Command("podman", "ps", "--all", "--filter=label=run.hutch.sandbox", "--format={{.Names}} {{.Labels}}")
	cmd.Dir = "/"
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("podman ps: %v", err)
	}
	for line := range strings.Lines(string(out)) {
		if name, labels, _ := strings.Cut(line, " "); strings.Contains(labels, u.home) {
			names = append(names, name)
		}
	}
	return names
}

func killedAtSandboxes(t *testing.T, u *user, backend string, kills int) {
	before := u.traces(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	create := func(name string) []string {
		return []string{"create", "--backend", backend, "--workspace", u.work, "--timeout", "1m", "--name", name}
	}
	start := time.Now()
	u.hutch(t, 0, create("keeper")...)
	whole := time.Since(start)
	u.hutch(t, 0, "exec", "-q", "keeper", "--", "sh", "-c", "echo precious > kept")

	died := map[string]int{}
	for i := range kills {
		name := fmt.Sprintf("box%d", i)
		var args []string
		switch i % 5 {
		case 0, 1:
			args = create(name)
		case 2:
			args = []string{"exec", "-q", "keeper", "--", "sh", "-c", "echo " + u.marker + "; sleep 60"}
		case 3:
			args = []string{"reset", "-f", "keeper"}
		case 4:
			u.hutch(t, 0, create(name)...)
			args = []string{"rm", "-f", name}
		}
		cmd := u.command(args...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		timer := time.NewTimer(time.Duration(random.Int64N(int64(whole) * 3 / 2)))
		<-timer.C // the moment is the point of the test, not a way to wait for anything
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
			died[args[0]]++
		}
	}
	t.Logf("died on the way: %v", died)
	total := 0
	for _, n := range died {
		total += n
	}
	if total < kills/4 {
		t.Fatalf("only %d of %d died before they were done: this proves little", total, kills)
	}
	// The commands of a killed hutch end by themselves, and so do its plugins.
	if !e2e.Eventually(time.Minute, func() bool { return len(e2e.Marked(u.marker)) == 0 && len(u.plugins()) == 0 }) {
		t.Errorf("still runs: commands %v, plugins %v", e2e.Marked(u.marker), u.plugins())
		e2e.KillMarked(u.marker)
	}
	u.hutch(t, 0, "gc")
	if strings.Contains(u.hutch(t, 0, "ps", "-o", "json"), `"condition":"stopped"`) && backend == "podman" {
		u.hutch(t, 0, "reset", "keeper") // whose reset was killed, between the old container and the new one
	}
	if out := u.hutch(t, 0, "exec", "-q", "keeper", "--", "cat", "kept"); out != "precious\n" {
		t.Errorf("the files of a sandbox: %q", out)
	}
	names := strings.Fields(u.hutch(t, 0, "ps", "-q"))
	for _, line := range strings.Split(u.hutch(t, 0, "ps", "-o", "json"), "\n") {
		if line != "" && !strings.Contains(line, `"condition":"ready"`) {
			t.Errorf("gc left a sandbox that is not ready: %s", line)
		}
	}
	for _, name := range names {
		u.hutch(t, 0, "exec", "-q", name, "--", "true")
	}
	u.hutch(t, 0, append([]string{"rm", "-f"}, names...)...)
	u.hutch(t, 0, "gc")
	u.nothingForGC(t)
	if diff := cmp.Diff(before, u.traces(t)); diff != "" {
		t.Errorf("something is left (-before +after):\n%s", diff)
	}
	left, _ := filepath.Glob(filepath.Join(u.home, "hutch", "sandboxes", "[0-9]*"))
	if len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	// A persistent sandbox's holder names its directory, and so do Podman's programs.
	if !e2e.Eventually(time.Minute, func() bool { return len(e2e.Marked(filepath.Join(u.home, "hutch"))) == 0 }) {
		for _, pid := range e2e.Marked(filepath.Join(u.home, "hutch")) {
			b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			t.Errorf("still runs: %d %q", pid, b)
		}
	}
	u.hutch(t, 0, "audit", "verify")
}

// TestSandboxesAfterAReboot kills everything that a reboot would, and goes on.
func TestSandboxesAfterAReboot(t *testing.T) {
	e2e.Require(t, "bwrap")
	for name, uid := range e2e.Users() {
		t.Run(name, func(t *testing.T) {
			u := newUser(t, uid)
			u.hutch(t, 0, "create", "--backend", "bwrap", "--workspace", u.work, "--name", "box", "-e", "A=1")
			u.hutch(t, 0, "exec", "box", "--", "sh", "-c", "echo stays > f; echo goes > /tmp/f")
			e2e.KillMarked(filepath.Join(u.home, "hutch"))
			if out := u.hutch(t, 0, "ps"); !strings.Contains(out, "asleep") {
				t.Errorf("ps: %s", out)
			}
			if out := u.hutch(t, 0, "exec", "box", "--", "sh", "-c", "cat f; echo $A; ls /tmp"); out != "stays\n1\n" {
				t.Errorf("%q", out)
			}
			u.hutch(t, 0, "gc")
			u.hutch(t, 0, "exec", "box", "--", "true")
			u.hutch(t, 0, "rm", "box")
			if left := e2e.Marked(filepath.Join(u.home, "hutch")); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// TestManySandboxesOnOneProject: each sees the project and its own writes, and nobody else's.
func TestManySandboxesOnOneProject(t *testing.T) {
	e2e.Require(t, "bwrap")
	const many = 20
	for name, uid := range e2e.Users() {
		t.Run(name, func(t *testing.T) {
			u := newUser(t, uid)
			u.hutch(t, 0, "project", "create", "shop")
			u.hutch(t, 0, "run", "-q", "--backend", "bwrap", "--project", "shop:shared", "--", "sh", "-c", "echo base > base")
			var names []string
			for i := range many {
				names = append(names, fmt.Sprintf("s%d", i))
				u.hutch(t, 0, "create", "--backend", "bwrap", "--project", "shop", "--name", names[i])
			}
			t.Cleanup(func() { u.hutch(t, 0, "project", "rm", "-f", "shop") })
			done := make(chan error, many)
			for i := range many {
				go func() {
					cmd := u.command("exec", names[i], "--", "sh", "-c", fmt.Sprintf("cat base; echo %d > mine%d; ls mine*", i, i))
					out, err := cmd.CombinedOutput()
					if want := fmt.Sprintf("base\nmine%d\n", i); err == nil && string(out) != want {
						err = fmt.Errorf("%s: %q, want %q", names[i], out, want)
					}
					done <- err
				}()
			}
			for range many {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
			if out := u.hutch(t, 0, "exec", "s0", "--", "ls"); out != "base\nmine0\n" {
				t.Errorf("%q", out)
			}
		})
	}
}
