package podman

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/hutch-run/hutch/internal/podmantest"
	"github.com/hutch-run/hutch/test/e2e"
)

// TestPush sends a branch into a container and brings its commits back, over a stop and a start between the two.
func TestPush(t *testing.T) {
	image := podmantest.Git(t)
	dir, err := os.MkdirTemp("/var/tmp", "hutch-push-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	repo := filepath.Join(dir, "repo")
	for _, name := range []string{"tmp", "home", "repo"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	u := &user{dir: repo, env: []string{"HOME=" + os.Getenv("HOME"), "XDG_RUNTIME_DIR=" + os.Getenv("XDG_RUNTIME_DIR"), "HUTCH_HOME=" + filepath.Join(dir, "home"),
		"TMPDIR=" + filepath.Join(dir, "tmp"), "PATH=/usr/local/bin:/usr/bin:/bin", "GIT_CONFIG_GLOBAL=/dev/null"}}
	for name, text := range map[string]string{"plan.md": "write done.md\n", "agent.hcl": fmt.Sprintf(`run "agent" {
  backend "podman" {
    image = %q
    pull  = "never"
  }
  home ".agent/settings" { content = "set" }
  command = ["sh", "-c", "test $HUTCH_CLONE = $PWD && cp $HUTCH_PLAN done.md && git add done.md && git commit -q -m two && cat ~/.agent/settings"]
}
`, image)} {
		if err := os.WriteFile(filepath.Join(repo, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	git := func(args ...string) string {
		t.Helper()
		out, code := u.run("git", args...)
		if code != 0 {
			t.Fatalf("git %v: %s", args, out)
		}
		return strings.TrimSpace(out)
	}
	git("init", "-q", "-b", "main")
	git("config", "user.name", "Me")
	git("config", "user.email", "me@example.com")
	git("add", ".")
	git("commit", "-q", "-m", "one")

	t.Cleanup(func() { u.run(e2e.Hutch(), "rm", "-f", "job") })
	if out := u.hutch(t, 0, "push", "--name", "job", "agent.hcl", "plan.md"); !strings.Contains(out, "hutch pull job") || !strings.Contains(out, "set") {
		t.Errorf("the push says\n%s", out)
	}
	if got := git("log", "--format=%s"); got != "one" {
		t.Errorf("a push has changed the branch: %s", got)
	}
	u.hutch(t, 0, "stop", "job")
	if out := u.hutch(t, 125, "exec", "job", "--", "true"); !strings.Contains(out, "hutch start job") {
		t.Errorf("a command in a stopped container: %s", out)
	}
	if out := u.hutch(t, 0, "ps"); !strings.Contains(out, "stopped") {
		t.Errorf("hutch ps says\n%s", out)
	}
	u.hutch(t, 0, "start", "job")
	if out := u.hutch(t, 0, "exec", "-q", "job", "--", "sh", "-c", "cat ~/.agent/settings"); out != "set" {
		t.Errorf("the home block's file after a start: %q", out)
	}
	if out := u.hutch(t, 0, "pull", "job"); !strings.Contains(out, "1 commit") {
		t.Errorf("the pull says %s", out)
	}
	if got := git("log", "--format=%s by %an"); got != "two by Me\none by Me" {
		t.Errorf("the branch has\n%s", got)
	}
	if got, err := os.ReadFile(filepath.Join(repo, "done.md")); err != nil || string(got) != "write done.md\n" {
		t.Errorf("done.md: %q %v", got, err)
	}
	u.hutch(t, 0, "audit", "verify")
	u.hutch(t, 0, "rm", "job")
}

// TestPushAgain runs the script that is for every backend.
func TestPushAgain(t *testing.T) {
	image := podmantest.Git(t)
	testscript.Run(t, testscript.Params{
		Files:               []string{"../e2e/testdata/push_again.txtar"},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		WorkdirRoot:         e2e.Dir,
		Setup: func(env *testscript.Env) error {
			for name, value := range map[string]string{
				"HUTCH_HOME": filepath.Join(env.WorkDir, ".hutch"), "HOME": os.Getenv("HOME"), "XDG_RUNTIME_DIR": os.Getenv("XDG_RUNTIME_DIR"), "GIT_CONFIG_GLOBAL": "/dev/null",
				"PATH": filepath.Dir(e2e.Hutch()) + ":/usr/local/bin:/usr/bin:/bin", "BLOCK": fmt.Sprintf("backend \"podman\" {\n image = %q\n pull = \"never\"\n }", image),
			} {
				env.Setenv(name, value)
			}
			env.Defer(func() {
				for _, name := range []string{"thin", "whole"} { // of a script that failed
					rm := exec.Command(e2e.Hutch(), "rm", "-f", name)
					rm.Env = env.Vars
					_ = rm.Run()
				}
			})
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": e2e.Status},
	})
}
