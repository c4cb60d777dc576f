package crash

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-run/hutch/internal/podmantest"
	"github.com/hutch-run/hutch/test/e2e"
)

// ownStorage gives an ordinary user's Podman a storage beside the runtime directory that hutch has in these tests, for
// the rest of the test.
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

// containers are the names of all containers that were made for this user's store, running or not, by their ids.
func (u *user) containers(t *testing.T) map[string]string {
	t.Helper()
	cmd := exec.Command("podman", "ps", "--all", "--no-trunc", "--filter=label=run.hutch.sandbox", "--format={{.ID}} {{.Names}} {{.Labels}}")
	cmd.Dir = "/"
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("podman ps: %v", err)
	}
	names := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if f := strings.SplitN(line, " ", 3); strings.Contains(f[2], u.home) {
			names[f[0]] = f[1]
		}
	}
	return names
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
