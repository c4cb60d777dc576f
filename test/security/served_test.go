package security

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hutch-run/hutch/test/e2e"
)

// TestCatalogueServed tries the attacks of the catalogue in sandboxes of `hutch serve`, which it makes ahead of the
// command where it can. What comes of them must be what the page says of bwrap.
func TestCatalogueServed(t *testing.T) {
	e2e.Require(t, "bwrap")
	results := table{}
	t.Run("places", func(t *testing.T) {
		for name, uid := range e2e.Users() {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				p := place{name: "bwrap user", backend: "bwrap", uid: uid, gid: uid}
				if uid == 0 {
					p.name = "bwrap root"
				} else if uid == os.Getuid() {
					p.gid = os.Getgid()
				}
				for _, a := range catalogue {
					t.Run(a.id, func(t *testing.T) {
						for range 5 { // another test may mount something, and then none that was made before is used
							w := newWorld(t, p)
							ahead := w.serve(t, a)
							results.set(a.id, p.name, a.try(t, w))
							if w.usedAhead(t) == ahead {
								return
							}
						}
						t.Error("the sandbox of the attack was never one that was made ahead")
					})
				}
			})
		}
	})
	results.compareWithPage(t)
}

// serve starts a resident for the world, and has it make a sandbox like the one that the attack gets. It reports whether
// there is one.
func (w *world) serve(t *testing.T, a attack) bool {
	t.Helper()
	dir := filepath.Join(filepath.Dir(w.home), "run")
	must(t, os.Mkdir(dir, 0o700))
	must(t, os.Chown(dir, w.uid, w.gid))
	w.env = append(slices.Clip(w.env), "XDG_RUNTIME_DIR="+dir)
	hutch := func(args ...string) string {
		stdout, stderr, code := w.run(t, e2e.Hutch(), args...)
		if code != 0 {
			t.Fatalf("hutch %s: code %d\n%s%s", strings.Join(args, " "), code, stdout, stderr)
		}
		return stdout
	}
	hutch("serve", "--detach")
	t.Cleanup(func() {
		cmd := exec.Command(e2e.Hutch(), "serve", "--stop")
		w.as(cmd)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("hutch serve --stop: %v\n%s", err, out)
		}
	})
	if a.terminal || a.mode != "" {
		return false
	}
	hutch(append(append([]string{"run", "--backend", w.backend, "--workspace", w.workspace()}, a.flags...), "--", "true")...)
	if !e2e.Eventually(time.Minute, func() bool {
		made, _ := filepath.Glob(filepath.Join(w.home, ".hutch", "state", "intents", "*.jsonl"))
		return len(made) == 1 && strings.Contains(hutch("serve", "--status"), "workers: 1, 1 idle")
	}) {
		t.Fatalf("no sandbox was made ahead:\n%s", hutch("serve", "--status"))
	}
	return true
}

// usedAhead reports whether the last run of the world used a sandbox that was made before it.
func (w *world) usedAhead(t *testing.T) bool {
	t.Helper()
	chains, err := filepath.Glob(filepath.Join(w.home, ".hutch", "runs", "*", "events.jsonl"))
	must(t, err)
	if len(chains) == 0 {
		return false
	}
	b, err := os.ReadFile(slices.Max(chains))
	must(t, err)
	return strings.Contains(string(b), `"ahead":true`)
}
