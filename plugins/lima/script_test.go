package main

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/hutch-run/hutch/plugins/lima/internal/limatest"
)

// TestScripts runs the whole program, as a user does, against the stand-in.
func TestScripts(t *testing.T) {
	standIn(t)
	built := filepath.Join(filepath.Dir(os.Getenv(testGuestVariable)), "..", "..")
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			home, err := os.MkdirTemp("", "l") // short: sockets lie in it
			if err != nil {
				return err
			}
			env.Defer(func() {
				limatest.StopAll(home)
				os.RemoveAll(home)
			})
			for name, value := range map[string]string{
				"HUTCH_HOME": filepath.Join(env.WorkDir, ".hutch"), "LIMA_HOME": home, "HOME": env.WorkDir, "XDG_RUNTIME_DIR": "", "XDG_DATA_HOME": "",
				"PATH": filepath.Join(built, "bin") + ":" + os.Getenv("PATH"), "HUTCH_BACKEND_PATH": "",
			} {
				env.Setenv(name, value)
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": exitStatus},
	})
}

// exitStatus is status: it runs a program and checks its exit code: status 124 hutch run …
func exitStatus(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status CODE PROGRAM [ARG...]")
	}
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit interface{ ExitCode() int }
		if e, ok := err.(interface{ ExitCode() int }); ok {
			exit = e
		} else {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if strconv.Itoa(got) != args[0] {
		ts.Fatalf("exit code %d, want %s", got, args[0])
	}
}
