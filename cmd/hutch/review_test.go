package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestReviewScripts is about diff and apply, which need a backend with layers: the real bwrap.
func TestReviewScripts(t *testing.T) {
	out, err := exec.Command("bwrap", "--ro-bind", "/", "/", "--unshare-all", "true").CombinedOutput()
	if err != nil && slices.Contains(strings.Split(os.Getenv("HUTCH_TEST_REQUIRE"), ","), "bwrap") {
		t.Fatalf("bwrap is required (HUTCH_TEST_REQUIRE): %v %s", err, out)
	}
	if err != nil {
		t.Skipf("bwrap does not work here: %v %s", err, out)
	}
	backends := buildBackends(t, "bwrap")
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/review",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		WorkdirRoot:         openDir(t),
		Setup: func(env *testscript.Env) error {
			env.Setenv("HUTCH_HOME", filepath.Join(env.WorkDir, ".hutch"))
			env.Setenv("XDG_RUNTIME_DIR", "")
			env.Setenv("HUTCH_BACKEND_PATH", backends)
			env.Setenv("NO_COLOR", "1")
			env.Defer(func() { removeSandboxes(t, env) })
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": status},
	})
}

// removeSandboxes removes what a script left: a persistent sandbox has its own process.
func removeSandboxes(t *testing.T, env *testscript.Env) {
	hutch := func(args ...string) string {
		cmd := exec.Command(filepath.Join(strings.Split(env.Getenv("PATH"), string(filepath.ListSeparator))[0], "hutch"), args...)
		cmd.Env = env.Vars
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("hutch %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	if names := strings.Fields(hutch("ps", "-q")); len(names) > 0 {
		hutch(append([]string{"rm", "-f"}, names...)...)
	}
}
