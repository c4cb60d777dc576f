package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/creack/pty"
	"github.com/rogpeppe/go-internal/testscript"
)

// TestScripts runs the whole program, as a user does, with a VM for each script on the stand-in, or with
// HUTCH_TEST_LIMA=1 all of them with the tests' real VM, which some stop. The last script is one for every backend.
func TestScripts(t *testing.T) {
	needStandIn(t)
	real := os.Getenv(realVariable) == "1"
	block, instance := `backend "lima" {}`, "hutch"
	if real {
		needVM(t)
		block, instance = testBlock(t), fmt.Sprint(testConfig(t)["instance"])
	}
	scripts, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	built := filepath.Join(filepath.Dir(os.Getenv(testGuestVariable)), "..", "..")
	testscript.Run(t, testscript.Params{
		Files:               append(scripts, "../../test/e2e/testdata/push_again.txtar"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			home, err := limaHome(env, real)
			if err != nil {
				return err
			}
			for name, value := range map[string]string{
				"HUTCH_HOME": filepath.Join(env.WorkDir, ".hutch"), "LIMA_HOME": home, "HOME": env.WorkDir, "XDG_RUNTIME_DIR": "", "XDG_DATA_HOME": "",
				"PATH": filepath.Join(built, "bin") + ":" + os.Getenv("PATH"), "HUTCH_BACKEND_PATH": "", "MODEL": filepath.Join(built, "libexec", "hutch", "hutch-agent"),
				"BLOCK": block, "INSTANCE": instance,
			} {
				env.Setenv(name, value)
			}
			for _, name := range limaEnvironment {
				if value := os.Getenv(name); value != "" && name != "LIMA_HOME" {
					env.Setenv(name, value)
				}
			}
			env.Values[scriptEnv{}] = env
			if err := cycleExample(filepath.Join(env.WorkDir, "cycle")); err != nil {
				return err
			}
			return putBlock(env.WorkDir, block)
		},
		Condition: func(cond string) (bool, error) {
			if cond != "real" {
				return false, fmt.Errorf("there is no condition %s", cond)
			}
			return real, nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": exitStatus, "killed": killed},
	})
}

// limaHome is where the VMs of a script are: the user's own place when they are real, else one that goes with the
// script.
func limaHome(env *testscript.Env, real bool) (string, error) {
	if real {
		l, err := findLimactl()
		if err != nil {
			return "", err
		}
		return l.home, nil
	}
	home, err := os.MkdirTemp("", "l") // short: sockets lie in it
	if err != nil {
		return "", err
	}
	env.Defer(func() {
		stopAll(home)
		os.RemoveAll(home)
	})
	return home, nil
}

// testBlock is the block of a run file that says what testConfig does.
func testBlock(t testing.TB) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("backend \"lima\" {\n")
	c := testConfig(t)
	for _, name := range slices.Sorted(maps.Keys(c)) {
		value, err := json.Marshal(c[name])
		if err != nil {
			t.Fatal(err)
		}
		// A value of JSON is one of HCL, but for these two.
		fmt.Fprintf(&b, "    %s = %s\n", name, strings.NewReplacer("${", "$${", "%{", "%%{").Replace(string(value)))
	}
	b.WriteString("  }")
	return b.String()
}

// putBlock gives the block to the run files below dir that have an empty one.
func putBlock(dir, block string) error {
	return filepath.WalkDir(dir, func(file string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(file) != ".hcl" {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		return os.WriteFile(file, bytes.ReplaceAll(text, []byte(`backend "lima" {}`), []byte(block)), 0o644)
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

type scriptEnv struct{} // the key of a script's environment among its values

// killed is killed: it runs a program in a terminal and kills it, with no word to it, once the terminal shows a text,
// which is stdout then: killed 'Apply this' hutch cycle …
func killed(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: killed TEXT PROGRAM [ARG...]")
	}
	cmd := exec.Command("env", args[1:]...) // becomes the program, which it finds in the script's PATH
	cmd.Dir, cmd.Env = ts.MkAbs("."), ts.Value(scriptEnv{}).(*testscript.Env).Vars
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: 200})
	ts.Check(err)
	defer tty.Close()
	var seen []byte
	for b := make([]byte, 4096); err == nil && !bytes.Contains(seen, []byte(args[0])); {
		var n int
		n, err = tty.Read(b)
		seen = append(seen, b[:n]...)
	}
	ts.Check(cmd.Process.Kill())
	_ = cmd.Wait() // killed
	_, _ = ts.Stdout().Write(seen)
	if err != nil {
		ts.Fatalf("it ended without %q: %v", args[0], err)
	}
}
