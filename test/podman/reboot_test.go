package podman

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/internal/podmantest"
	"github.com/hutch-run/hutch/test/e2e"
)

// TestReboot takes away from a sandbox what a reboot does: every process, every mount, and all of Podman and hutch that
// does not lie on a disk. Podman has its own storage here, so that no other container notices.
func TestReboot(t *testing.T) {
	for _, name := range []string{"rootful", "rootless"} {
		t.Run(name, func(t *testing.T) {
			if name == "rootful" && os.Getuid() != 0 {
				t.Skip("rootful Podman is root's, and only root can unmount what a reboot would")
			}
			t.Parallel()
			testReboot(t, newUser(t, name == "rootless", true))
		})
	}
}

func testReboot(t *testing.T, u *user) {
	u.plant(t, map[string]string{"theirs": "p\n"})
	file := filepath.Join(u.dir, "box.hcl")
	if err := os.WriteFile(file, []byte(`run "box" {
  backend "podman" {
    image = "localhost/hutch-example"
    pull  = "never"
  }
  env = { A = "1" }
  workspace { source = "project" }
  command = ["true"]
}
`), 0o644); err != nil {
		t.Fatal(err)
	}
	u.hutch(t, 0, "create", file, "--name", "box")
	t.Cleanup(func() { u.hutch(t, 0, "rm", "-f", "box") })
	u.hutch(t, 0, "exec", "-q", "box", "--", "sh", "-c", "echo stays > mine; echo o > /output/o; echo goes > /tmp/f")
	for _, how := range []string{"once", "twice"} {
		u.reboot(t)
		u.hutch(t, 0, "gc")
		if out := u.hutch(t, 0, "ps"); !strings.Contains(out, " stopped ") || !strings.Contains(out, " 1, 6 B\n") {
			t.Errorf("%s: ps: %s", how, out)
		}
		if out := u.hutch(t, 125, "exec", "box", "--", "true"); !strings.Contains(out, "hutch start box") {
			t.Errorf("%s: a command in a stopped sandbox: %s", how, out)
		}
		if got := u.hutch(t, 0, "fs", "read", "box", "mine"); got != "stays\n" {
			t.Errorf("%s: its files are read without it: %q", how, got)
		}
		if got := u.hutch(t, 0, "diff", "box", "--name-only"); got != "mine\n" {
			t.Errorf("%s: its changes are reported without it: %q", how, got)
		}
		u.hutch(t, 0, "start", "box")
		if got := u.hutch(t, 0, "exec", "-q", "box", "--", "sh", "-c", "cat mine theirs /output/o; echo $A; ls /tmp"); got != "stays\np\no\n1\n" {
			t.Errorf("%s: it goes on with %q", how, got)
		}
	}
	u.hutch(t, 0, "rm", "box")
	if out, code := u.run("podman", "ps", "--all", "--quiet"); code != 0 || out != "" {
		t.Errorf("containers are left: %s", out)
	}
	u.hutch(t, 0, "audit", "verify")
}

// reboot ends and removes what no reboot leaves.
func (u *user) reboot(t *testing.T) {
	t.Helper()
	out, code := u.run("podman", "ps", "--format={{.Pid}}")
	pids := strings.Fields(out)
	if code != 0 || len(pids) == 0 {
		t.Fatalf("no container runs: %s", out)
	}
	for _, p := range pids {
		pid, err := strconv.Atoi(p)
		if err != nil || pid < 2 {
			t.Fatalf("the process of a container is %q", p)
		}
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	e2e.KillMarked(u.dir)
	podmantest.EndPause(filepath.Join(u.dir, "run")) // it holds a rootless Podman's mounts
	if !e2e.Eventually(time.Minute, func() bool { return len(e2e.Marked(u.dir)) == 0 }) {
		t.Fatalf("still runs: %v", e2e.Marked(u.dir))
	}
	for _, at := range u.mounts(t) {
		if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
			t.Fatalf("unmount %s: %v", at, err)
		}
	}
	for _, dir := range []string{"run", "tmp"} {
		at := filepath.Join(u.dir, dir)
		if err := os.RemoveAll(at); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(at, 0o700); err != nil {
			t.Fatal(err)
		}
		if u.as != nil {
			if err := os.Chown(at, int(u.as.Credential.Uid), int(u.as.Credential.Gid)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// mounts are those below the user's directory, the deepest first.
func (u *user) mounts(t *testing.T) (list []string) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], u.dir+"/") {
			list = append(list, f[4])
		}
	}
	slices.SortFunc(list, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return list
}
