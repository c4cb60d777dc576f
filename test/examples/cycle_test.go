package examples

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/internal/podmantest"
	"github.com/hutch-run/hutch/plugins/e2b/e2btest"
	"github.com/hutch-run/hutch/test/e2e"
)

// TestCycle has the scripted model work the specification of examples/cycle on one backend after another: nothing but
// the backend's block differs, and the limit that e2b cannot hold, nor Podman everywhere without root, and so does
// nothing that comes of it. On lima it does so in plugins/lima/testdata/script/cycle.txtar, which is run as somebody
// other than root.
func TestCycle(t *testing.T) {
	const written = `backend "bwrap" {}`
	for name, on := range map[string]func(t *testing.T) (block string, env []string){
		"bwrap": func(t *testing.T) (string, []string) {
			e2e.Require(t, "bwrap")
			return written, nil
		},
		"podman": func(t *testing.T) (string, []string) {
			podmantest.Need(t)
			return fmt.Sprintf("backend \"podman\" {\n    image = %q\n    pull  = \"never\"\n  }", podmantest.Python(t)), nil
		},
		"e2b": func(t *testing.T) (string, []string) {
			return `backend "e2b" {}`, e2btest.ForTest(t, e2btest.Options{}).Env()
		},
	} {
		t.Run(name, func(t *testing.T) {
			block, env := on(t)
			dir, err := os.MkdirTemp("/var/tmp", "hutch-cycle-") // where overlays may be made
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			if err := os.CopyFS(dir, os.DirFS("../../examples/cycle")); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, "cycle.hcl")
			text, err := os.ReadFile(file)
			if err != nil || strings.Count(string(text), written) != 1 {
				t.Fatalf("the example names its backend otherwise than by %s: %v", written, err)
			}
			changed := strings.Replace(string(text), written, block, 1)
			if name == "e2b" || name == "podman" && os.Geteuid() != 0 { // without root, Podman holds it on cgroup v2 alone
				changed = strings.Replace(changed, "    pids    = 64\n", "", 1)
			}
			if err := os.WriteFile(file, []byte(changed), 0o644); err != nil {
				t.Fatal(err)
			}
			run := func(args ...string) []byte {
				t.Helper()
				cmd := hutch(t, args...)
				cmd.Env = append(append(cmd.Env, env...), "HUTCH_HOME="+filepath.Join(dir, "home"))
				var stderr strings.Builder
				cmd.Stderr = &stderr
				out, err := cmd.Output()
				if err != nil {
					t.Fatalf("hutch %s: %v\n%s%s", strings.Join(args, " "), err, out, &stderr)
				}
				return out
			}

			type story struct {
				OK      bool
				Outcome string
				Backend string
				Turns   int
				Calls   int                 `json:"tool_calls"`
				Errors  int                 `json:"tool_errors"`
				Checks  []struct{ OK bool } `json:"checks"`
				Changes []struct{ Path, Kind string }
				Apply   struct{ Done bool }
				ID      string
			}
			var got story
			if err := json.Unmarshal(run("cycle", "-o", "json", "--apply=on-success", file, "--id", "1"), &got); err != nil {
				t.Fatal(err)
			}
			id := got.ID
			got.ID = ""
			want := story{OK: true, Outcome: "done", Backend: name, Turns: 4, Calls: 8, Errors: 1, Checks: []struct{ OK bool }{{false}, {true}},
				Changes: []struct{ Path, Kind string }{{"words.py", "modified"}}, Apply: struct{ Done bool }{true}}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("the cycle's story (-want +got):\n%s", d)
			}
			if b, err := os.ReadFile(filepath.Join(dir, "project", "words.py")); err != nil || !strings.Contains(string(b), "def longest(text)") {
				t.Errorf("the project has %v\n%s", err, b)
			}
			tree := string(run("show", "--tree", id))
			for _, said := range []string{"apply_patch", "run_command", "tear-down", "attempt 2"} {
				if !strings.Contains(tree, said) {
					t.Errorf("the tree says nothing of %s:\n%s", said, tree)
				}
			}
			if out := run("ps", "-q"); len(out) != 0 {
				t.Errorf("the cycle left a sandbox behind: %s", out)
			}
			run("audit", "verify")
		})
	}
}
