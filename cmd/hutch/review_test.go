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
		WorkdirRoot:         builds, // a place that the sandbox's user may enter
		Setup: func(env *testscript.Env) error {
			env.Setenv("HUTCH_HOME", filepath.Join(env.WorkDir, ".hutch"))
			env.Setenv("XDG_RUNTIME_DIR", "")
			env.Setenv("HUTCH_BACKEND_PATH", backends)
			env.Setenv("NO_COLOR", "1")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": status},
	})
}
