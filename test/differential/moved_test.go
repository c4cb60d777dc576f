package differential

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-run/hutch/internal/podmantest"
	"github.com/hutch-run/hutch/test/e2e"
)

// TestK2MovedAndCopiedStore copies a store with a persistent sandbox, whose copy touches nothing of the original, and
// moves the store, after which the sandbox is there with all that was written.
func TestK2MovedAndCopiedStore(t *testing.T) {
	e2e.Require(t, "bwrap")
	podmantest.Need(t)
	for name, block := range map[string]string{"bwrap": `backend "bwrap" {}`, "podman": fmt.Sprintf(`backend "podman" { image = %q }`, podmantest.Busybox(t))} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			first, copied, moved := filepath.Join(top, "first"), filepath.Join(top, "copied"), filepath.Join(top, "moved")
			project := filepath.Join(top, "project")
			text := fmt.Sprintf("run \"box\" {\n  %s\n  file \"main.sh\" { content = \"cat new\" }\n  entrypoint = \"main.sh\"\n  workspace { source = %q }\n}\n", block, project)
			if err := errors.Join(os.Mkdir(first, 0o700), os.Mkdir(project, 0o755), os.WriteFile(filepath.Join(top, "run.hcl"), []byte(text), 0o644)); err != nil {
				t.Fatal(err)
			}
			hutch := func(home string, want int, args ...string) string {
				t.Helper()
				cmd := exec.CommandContext(t.Context(), e2e.Hutch(), args...)
				cmd.Env = append(os.Environ(), "HUTCH_HOME="+home)
				out, err := cmd.CombinedOutput()
				if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != want {
					t.Fatalf("hutch %q in %s: %v, want exit code %d\n%s", args, filepath.Base(home), err, want, out)
				}
				return string(out)
			}
			hutch(first, 0, "create", filepath.Join(top, "run.hcl"), "--name", "box")
			hutch(first, 0, "exec", "box", "--", "sh", "-c", "echo work > new")
			if out, err := exec.Command("cp", "-a", first, copied).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, args := range [][]string{{"exec", "box", "--", "sh", "-c", "echo spoilt > new"}, {"diff", "box"}, {"reset", "--hard", "box"}, {"fs", "read", "box", "new"}} {
				if out := hutch(copied, 125, args...); !strings.Contains(out, "belongs to the store at "+first) {
					t.Errorf("hutch %q in a copy of the store says\n%s", args, out)
				}
			}
			hutch(copied, 0, "rm", "-f", "box")
			hutch(copied, 0, "gc")
			if out := hutch(first, 0, "exec", "box", "--", "cat", "new"); out != "work\n" {
				t.Errorf("after the copy was removed the original has %q", out)
			}
			if err := os.Rename(first, moved); err != nil {
				t.Fatal(err)
			}
			if out := hutch(moved, 0, "diff", "--name-only", "box"); out != "new\n" {
				t.Errorf("after a move diff says %q", out)
			}
			if out := hutch(moved, 0, "exec", "box", "--", "sh", "-c", "sh $HUTCH_INPUT/main.sh"); out != "work\n" {
				t.Errorf("after a move the sandbox has %q", out)
			}
			if out := hutch(moved, 0, "inspect", "-o", "json", "box"); !strings.Contains(out, fmt.Sprintf(`"home": %q`, moved)) || strings.Contains(out, fmt.Sprintf(`"upper": "%s/`, first)) {
				t.Errorf("after a move the record is\n%s", out)
			}
			hutch(moved, 0, "reset", "box")
			if out := hutch(moved, 0, "exec", "box", "--", "sh", "-c", "sh $HUTCH_INPUT/main.sh"); out != "work\n" {
				t.Errorf("after a move and a reset the sandbox has %q", out)
			}
			hutch(moved, 0, "rm", "box")
			if list, err := os.ReadDir(filepath.Join(moved, "sandboxes")); err == nil {
				for _, e := range list {
					if !strings.HasPrefix(e.Name(), ".") {
						t.Errorf("%s is left", e.Name())
					}
				}
			}
		})
	}
}
