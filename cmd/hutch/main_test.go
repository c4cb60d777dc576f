package main

import (
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/hutch-run/hutch/internal/gobuild"
)

var update = flag.Bool("update", false, "rewrite golden files")

// The test binary itself runs as hutch, so scripts test the code at hand and coverage counts it.
func TestMain(m *testing.M) {
	testscript.Main(tests{m}, map[string]func(){"hutch": main})
}

// builds is the directory of the backends that tests build.
var builds string

type tests struct{ *testing.M }

// Run implements testscript.TestingM.
func (m tests) Run() int {
	var err error
	if builds, err = os.MkdirTemp("/var/tmp", "hutch-cli-test-"); err != nil {
		panic(err)
	}
	defer os.RemoveAll(builds)
	tmp, err := os.MkdirTemp("", "hutch-cli-") // the fake keeps its books there, and some tests leave it sandboxes; short, for sockets
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(tmp)
	os.Setenv("TMPDIR", tmp)
	return m.M.Run()
}

func TestScripts(t *testing.T) { scripts(t, func(*testscript.Env) error { return nil }) }

func scripts(t *testing.T, setup func(*testscript.Env) error) {
	backends := buildBackends(t, "fake")
	newer := filepath.Join(builds, "newer", "hutch-backend-fake")
	if err := gobuild.Build(newer, "github.com/hutch-run/hutch/plugins/fake", "-ldflags=-X main.version=0.2.0"); err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("HUTCH_HOME", filepath.Join(env.WorkDir, ".hutch"))
			env.Setenv("XDG_RUNTIME_DIR", "")
			env.Setenv("EXAMPLES", filepath.Join(root(t), "examples"))
			env.Setenv("HUTCH_BACKEND_PATH", backends)
			env.Setenv("OLD", filepath.Join(backends, "hutch-backend-fake"))
			env.Setenv("NEW", newer)
			return setup(env)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": status, "plantloop": plantLoop},
	})
}

// status runs a program and checks its exit code: status 124 hutch run …
func status(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status CODE PROGRAM [ARG...]")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if err != nil {
		if got = strings.TrimPrefix(err.Error(), "exit status "); got == err.Error() {
			ts.Fatalf("%s: %v", args[1], err)
		}
	}
	if got != args[0] {
		ts.Fatalf("ended with %s, want %s", got, args[0])
	}
}

// buildBackends builds backends, each set once, and returns the directory they are in. They are built and not linked
// into this binary, because cmd must not import plugins.
func buildBackends(t *testing.T, names ...string) string {
	t.Helper()
	dir := filepath.Join(builds, strings.Join(names, "+"))
	for _, name := range names {
		path := filepath.Join(dir, "hutch-backend-"+name)
		if _, err := os.Stat(path); err == nil {
			continue
		}
		if err := gobuild.Build(path, "github.com/hutch-run/hutch/plugins/"+name); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestCollectLate: only the first collection is late, for a heap that may grow to five times of what is alive would keep
// much of every run of a long call.
func TestCollectLate(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	collectLate()
	if got := debug.SetGCPercent(400); got != 400 {
		t.Errorf("it begins at %d", got)
	}
	for end := time.Now().Add(time.Minute); ; runtime.GC() {
		got := debug.SetGCPercent(400)
		if got == 100 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("it goes on at %d", got)
		}
	}
}
