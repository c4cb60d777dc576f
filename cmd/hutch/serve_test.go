package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// served has [env] start a resident.
var served bool

// serve starts a resident, which is stopped at the end of the test, and returns its runtime directory.
func serve(t *testing.T, e []string) (dir string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "run") // short, for sockets
	if err != nil {
		t.Fatal(err)
	}
	e = append(e, "XDG_RUNTIME_DIR="+dir)
	control(t, e, "--detach")
	t.Cleanup(func() {
		control(t, e, "--stop")
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func control(t *testing.T, e []string, flag string) string {
	t.Helper()
	cmd := exec.Command("hutch", "serve", flag)
	cmd.Env = e
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("hutch serve %s: %v\n%s", flag, err, out)
	}
	return string(out)
}

// number finds the number that comes before or after a word of the status.
func number(t *testing.T, status, pattern string) int {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(status)
	if m == nil {
		t.Fatalf("no %q in %s", pattern, status)
	}
	n, _ := strconv.Atoi(m[1])
	return n
}

// TestScriptsServed executes the scripts once more, each with a resident.
func TestScriptsServed(t *testing.T) {
	var executed atomic.Int64
	t.Run("scripts", func(t *testing.T) {
		scripts(t, func(env *testscript.Env) error {
			dir, err := os.MkdirTemp("", "run")
			if err != nil {
				return err
			}
			env.Setenv("XDG_RUNTIME_DIR", dir)
			e := append(env.Vars, "TMPDIR="+os.TempDir())
			control(t, e, "--detach")
			env.Defer(func() {
				status := control(t, e, "--status")
				executed.Add(int64(number(t, status, `(\d+) executed`)))
				if strings.Contains(status, "refused") {
					t.Errorf("commands were refused: %s", status)
				}
				control(t, e, "--stop")
				if err := os.RemoveAll(dir); err != nil {
					t.Error(err)
				}
			})
			return nil
		})
	})
	if n := executed.Load(); n < 100 {
		t.Errorf("only %d commands of the scripts were executed by residents", n)
	}
}

// TestLiveServed repeats the tests about signals and terminals, each with a resident.
func TestLiveServed(t *testing.T) {
	served = true
	defer func() { served = false }()
	for _, tc := range []struct {
		name string
		test func(*testing.T)
	}{
		{"Interrupt", TestInterrupt}, {"InterruptTwice", TestInterruptTwice}, {"TerminatedTwiceAtOnce", TestTerminatedTwiceAtOnce},
		{"SignalInTheFirstMilliseconds", TestL11SignalInTheFirstMilliseconds}, {"NothingMovesOffTerminal", TestNothingMovesOffTerminal},
		{"TerminalIsSafe", TestTerminalIsSafe}, {"LogsAreSafe", TestLogsAreSafe}, {"Interactive", TestInteractive},
		{"InteractiveNeedsTerminal", TestInteractiveNeedsTerminal}, {"ApplyAsks", TestApplyAsks},
	} {
		t.Run(tc.name, tc.test)
	}
}

// state returns the state of a process, such as "T" for one that is stopped; "" when it is gone.
func state(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	return strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))[0]
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

// TestServedStopAndKill: ^Z stops client and worker, fg continues both; killing the client ends the command, also while it
// is stopped.
func TestServedStopAndKill(t *testing.T) {
	served = true
	defer func() { served = false }()
	e := env(t, buildBackends(t, "fake"))
	for _, stopped := range []bool{false, true} {
		over := filepath.Join(t.TempDir(), "over")
		l := start(t, e, "run", "--backend", "fake", "--", "sh", "-c", "echo ready; until test -e "+over+"; do sleep 0.05; done")
		expect(t, l.stdout, "ready")
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", number(t, control(t, e, "--status"), `process (\d+)`)))
		if err != nil || len(files) == 0 {
			t.Skip("the kernel does not list children")
		}
		workers := func(want string) bool {
			for _, file := range files {
				children, _ := os.ReadFile(file)
				for _, f := range strings.Fields(string(children)) {
					pid, _ := strconv.Atoi(f)
					if state(pid) == want {
						return true
					}
				}
			}
			return false
		}
		if err := l.Process.Signal(syscall.SIGTSTP); err != nil {
			t.Fatal(err)
		}
		eventually(t, "client and worker are stopped", func() bool { return state(l.Process.Pid) == "T" && workers("T") })
		if !stopped {
			if err := errors.Join(l.Process.Signal(syscall.SIGCONT), os.WriteFile(over, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			l.end(t, 0)
			continue
		}
		_ = l.Process.Kill()
		_ = l.Wait()
		eventually(t, "the command ends with its client", func() bool {
			return !workers("T") && number(t, control(t, e, "--status"), `(\d+) running`) == 0
		})
	}
}

// TestServedElsewhere: another program, or a process whose limits differ, executes its commands itself, and says why.
func TestServedElsewhere(t *testing.T) {
	served = true
	defer func() { served = false }()
	e := env(t, buildBackends(t, "fake"))
	trace := t.TempDir() + "/trace.json"
	how := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, append(args, "run", "-q", "--trace", trace, "--backend", "fake", "--", "true")...)
		cmd.Env = e
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		b, err := os.ReadFile(trace)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	hutch, err := exec.LookPath("hutch")
	if err != nil {
		t.Fatal(err)
	}
	for want, got := range map[string]string{
		"start, by hutch serve":                                 how("hutch"),
		"start, without hutch serve: it has another limits":     how("sh", "-c", `ulimit -c 0; ulimit -s 4096; exec hutch "$@"`, "sh"),
		"start, without hutch serve: it has another nice value": how("nice", "-n", "3", "hutch"),
		"another variable that is read once differs":            how("env", "TZ=Asia/Tokyo", "hutch"),
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in the trace:\n%s", want, got)
		}
	}
	// As an upgrade does.
	other := filepath.Join(t.TempDir(), "hutch")
	if out, err := exec.Command("cp", "-L", hutch, other).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got := how(other); !strings.Contains(got, "another build of hutch") {
		t.Errorf("another program is served:\n%s", got)
	}
}

// TestServedUpgrade: a resident whose program was replaced ends, and the new one executes its commands itself.
func TestServedUpgrade(t *testing.T) {
	hutch, err := exec.LookPath("hutch")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	copyTo := func(path string) {
		t.Helper()
		if out, err := exec.Command("cp", "-L", hutch, path).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	copyTo(filepath.Join(dir, "hutch"))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	e := env(t, buildBackends(t, "fake"))
	e = append(e, "XDG_RUNTIME_DIR="+t.TempDir())
	control(t, e, "--detach")
	run := func(want int) {
		t.Helper()
		l := start(t, e, "run", "-q", "--backend", "fake", "--", "true")
		l.end(t, 0)
		status := exec.Command("hutch", "serve", "--status")
		status.Env = e
		out, _ := status.CombinedOutput()
		if got := status.ProcessState.ExitCode(); got != want {
			t.Errorf("status ended with %d, want %d: %s", got, want, out)
		}
	}
	run(0)
	copyTo(filepath.Join(dir, "hutch.new"))
	if err := os.Rename(filepath.Join(dir, "hutch.new"), filepath.Join(dir, "hutch")); err != nil {
		t.Fatal(err)
	}
	run(exitNo)
}
