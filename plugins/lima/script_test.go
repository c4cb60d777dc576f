package main

import (
	"bytes"
	"fmt"
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
			return cycleExample(filepath.Join(env.WorkDir, "cycle"))
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": exitStatus},
	})
}

// cycleExample copies examples/cycle, and changes its backend to a VM: a VM here needs no limit of processes.
func cycleExample(dir string) error {
	if err := os.CopyFS(dir, os.DirFS("../../examples/cycle")); err != nil {
		return err
	}
	file := filepath.Join(dir, "cycle.hcl")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for old, block := range map[string]string{`backend "bwrap" {}`: `backend "lima" {}`, "    pids    = 64\n": ""} {
		if bytes.Count(text, []byte(old)) != 1 {
			return fmt.Errorf("%s has no single %q", file, old)
		}
		text = bytes.Replace(text, []byte(old), []byte(block), 1)
	}
	return os.WriteFile(file, text, 0o644)
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
