package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestPushScripts sends branches into real sandboxes of bwrap and brings them back. Where there is no bwrap, the fake
// does for one round trip, which needs nothing but git.
func TestPushScripts(t *testing.T) {
	requireTool(t, "git", "--version")
	for _, name := range []string{"fake", "bwrap"} {
		t.Run(name, func(t *testing.T) {
			if name == "bwrap" {
				requireTool(t, "bwrap", "--ro-bind", "/", "/", "--unshare-all", "true")
			}
			files := []string{"testdata/push/round_trip.txtar", "testdata/push/asleep.txtar"}
			if name == "bwrap" {
				files, _ = filepath.Glob("testdata/push/*.txtar")
				files = slices.DeleteFunc(files, func(f string) bool { return filepath.Base(f) == "asleep.txtar" }) // bwrap has no exchange on the host
				files = append(files, filepath.Join(root(t), "test/e2e/testdata/push_again.txtar"))
			}
			pushScripts(t, name, files)
		})
	}
}

// openDir is a new directory for scripts, which the sandbox's user may enter.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(builds, "scripts-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func pushScripts(t *testing.T, backend string, files []string) {
	backends := buildBackends(t, backend)
	testscript.Run(t, testscript.Params{
		Files:               files,
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		WorkdirRoot:         openDir(t),
		Setup: func(env *testscript.Env) error {
			env.Setenv("HUTCH_HOME", filepath.Join(env.WorkDir, ".hutch"))
			env.Setenv("XDG_RUNTIME_DIR", "")
			env.Setenv("HUTCH_BACKEND_PATH", backends)
			env.Setenv("BACKEND", backend)
			env.Setenv("BLOCK", fmt.Sprintf("backend %q {}", backend))
			env.Setenv("EXAMPLES", filepath.Join(root(t), "examples"))
			env.Setenv("NO_COLOR", "1")
			env.Setenv("TMPDIR", env.Getenv("TMPDIR"))
			for name, value := range map[string]string{ // for the git of the scripts
				"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_AUTHOR_DATE": "2026-01-02T03:04:05Z", "GIT_COMMITTER_DATE": "2026-01-02T03:04:05Z",
			} {
				env.Setenv(name, value)
			}
			env.Defer(func() { removeSandboxes(t, env) })
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": status},
	})
}

// requireTool skips a test without a tool, and fails it where HUTCH_TEST_REQUIRE lists the tool.
func requireTool(t *testing.T, name string, args ...string) {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil && slices.Contains(strings.Split(os.Getenv("HUTCH_TEST_REQUIRE"), ","), name) {
		t.Fatalf("%s is required (HUTCH_TEST_REQUIRE): %v %s", name, err, out)
	}
	if err != nil {
		t.Skipf("%s does not work here: %v %s", name, err, out)
	}
}

// TestPushThroughExchange is about backends with a directory that host and sandbox both see, as the fake can have one.
func TestPushThroughExchange(t *testing.T) {
	requireTool(t, "git", "--version")
	pushScripts(t, "fake", []string{"testdata/exchange/exchange.txtar"})
}
