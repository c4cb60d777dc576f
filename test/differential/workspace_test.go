package differential

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/internal/podmantest"
	"github.com/hutch-run/hutch/test/e2e"
)

// TestL1OwnInputAndOutput works on a repository that has directories called input and output itself: a sandbox shows
// them as they are, git sees no change in it, and what is changed there reaches diff and apply like all else.
func TestL1OwnInputAndOutput(t *testing.T) {
	e2e.Require(t, "bwrap")
	podmantest.Need(t)
	home := t.TempDir()
	run := func(dir, name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "HUTCH_HOME="+home, "GIT_CONFIG_GLOBAL=/dev/null")
		out, err := cmd.Output()
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			t.Fatalf("%s %q: %v\n%s%s", name, args, err, out, exit.Stderr)
		} else if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	image := podmantest.Busybox(t)
	for name, block := range map[string]string{
		"bwrap":         `backend "bwrap" {}`,
		"podman native": fmt.Sprintf(`backend "podman" { image = %q }`, image),
		"podman copy":   fmt.Sprintf("backend \"podman\" {\n image = %q\n overlay = \"copy\"\n}", image),
	} {
		t.Run(name, func(t *testing.T) {
			project := t.TempDir()
			write := func(dir, name, data string) {
				t.Helper()
				p := filepath.Join(dir, name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(data), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			write(project, "input/in.txt", "in\n")
			write(project, "output/out.txt", "out\n")
			git := []string{"-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "safe.directory=*"}
			run(project, "git", append(git, "init", "-q")...)
			run(project, "git", append(git, "add", ".")...)
			run(project, "git", append(git, "commit", "-qm", "one")...)
			file := filepath.Join(t.TempDir(), "run.hcl")
			write(filepath.Dir(file), "run.hcl", fmt.Sprintf("run \"r\" {\n  %s\n  file \"main.sh\" { content = \"cat $HUTCH_INPUT/main.sh\" }\n  entrypoint = \"main.sh\"\n  workspace { source = %q }\n}\n", block, project))
			id := "l1-" + filepath.Base(filepath.Dir(file))
			run(home, e2e.Hutch(), "create", file, "--name", id)
			defer run(home, e2e.Hutch(), "rm", "-f", id)
			exec := func(script string) string {
				t.Helper()
				return run(home, e2e.Hutch(), "exec", id, "--", "sh", "-c", script)
			}
			if name == "bwrap" {
				if got := exec("git --no-optional-locks -c safe.directory='*' status --porcelain"); got != "" {
					t.Errorf("git status inside is %q, want nothing", got)
				}
			}
			if diff := cmp.Diff("in.txt\nout.txt\nin\nout\n", exec("ls input; ls output; cat input/* output/*")); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff("/input /output\ncat $HUTCH_INPUT/main.sh", exec(`echo $HUTCH_INPUT $HUTCH_OUTPUT; sh $HUTCH_INPUT/main.sh`)); diff != "" {
				t.Error(diff)
			}
			exec("mkdir -p input output; echo changed > input/in.txt; echo new > output/new.txt")
			if diff := cmp.Diff("input/in.txt\noutput/new.txt\n", run(home, e2e.Hutch(), "diff", "--name-only", id)); diff != "" {
				t.Error(diff)
			}
			run(home, e2e.Hutch(), "apply", id)
			if diff := cmp.Diff(" M input/in.txt\n?? output/new.txt\n", run(project, "git", append(git, "status", "--porcelain")...)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
