package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk"
)

func TestSandboxTellsHowACommandEnded(t *testing.T) {
	dir := write(t, t.TempDir(), map[string]string{"plain": "#!/bin/sh\n", "garbage": "not a program\n", "badinterp": "#!/no/such/interpreter\n"})
	for _, f := range []string{"garbage", "badinterp"} {
		if err := os.Chmod(dir+"/"+f, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s := newSandbox(t, sdk.Spec{Workspace: sdk.Workspace{Source: dir, Mode: sdk.WorkspacePrivate}})
	for _, c := range []struct {
		name   string
		argv   []string
		cause  sdk.Cause
		code   int
		signal string
		not    bool
	}{
		{"zero", []string{"true"}, sdk.CauseExited, 0, "", false},
		{"one", []string{"false"}, sdk.CauseExited, 1, "", false},
		{"255", []string{"sh", "-c", "exit 255"}, sdk.CauseExited, 255, "", false},
		{"exits with 137", []string{"sh", "-c", "exit 137"}, sdk.CauseExited, 137, "", false},
		{"exits with 127", []string{"sh", "-c", "exit 127"}, sdk.CauseExited, 127, "", false},
		{"killed by 9", []string{"sh", "-c", "kill -9 $$"}, sdk.CauseSignaled, 137, "SIGKILL", false},
		{"killed by TERM", []string{"sh", "-c", "kill -TERM $$"}, sdk.CauseSignaled, 143, "SIGTERM", false},
		{"killed by SEGV", []string{"sh", "-c", "kill -SEGV $$"}, sdk.CauseSignaled, 139, "SIGSEGV", false},
		{"not found", []string{"no-such-program"}, sdk.CauseExited, 127, "", true},
		{"no such path", []string{"./nothing/here"}, sdk.CauseExited, 127, "", true},
		{"not executable", []string{"./plain"}, sdk.CauseExited, 126, "", true},
		{"a directory", []string{"/usr"}, sdk.CauseExited, 126, "", true},
		{"not a program", []string{"./garbage"}, sdk.CauseExited, 126, "", true},
		{"no interpreter", []string{"./badinterp"}, sdk.CauseExited, 127, "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			started := false
			r := run(t, t.Context(), s, &sdk.Command{Argv: c.argv, Started: func() { started = true }})
			if started == c.not {
				t.Errorf("started: %v", started)
			}
			if r.Cause != c.cause || r.Code != c.code || r.Signal != c.signal || r.NotStarted != c.not || r.Evidence == "" {
				t.Errorf("got %+v", r.Exit)
			}
			if r.err != "" && c.not {
				t.Errorf("somebody wrote to the command's stderr: %q", r.err)
			}
		})
	}
	_, err := try(t, t.Context(), s, &sdk.Command{Argv: []string{"true"}, Dir: "/no/such"})
	if sdk.ReasonOf(err) != sdk.ReasonConfig || !strings.Contains(err.Error(), "/no/such") {
		t.Errorf("a missing directory gave %v", err)
	}
}

// marker makes a command line that can be found among all processes of the host.
func marker(testing.TB) string { return strconv.FormatInt(time.Now().UnixNano()%1e9+1e9, 10) }

// alive lists the host's processes that are "sleep SECONDS".
func alive(t testing.TB, seconds string) (pids []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		line, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if err == nil && string(line) == "sleep\x00"+seconds+"\x00" {
			pids = append(pids, pid)
		}
	}
	return pids
}

func TestSandboxKillsTheWholeTree(t *testing.T) {
	for _, c := range []struct {
		name   string
		script string // SECONDS is replaced by a number that marks its processes
		cause  error
		want   sdk.Cause
		grace  time.Duration
		signal string
		procs  int // that run before it has to end
	}{
		{"obeys TERM", "exec sleep SECONDS", sdk.ErrTimeout, sdk.CauseTimeout, time.Minute, "SIGTERM", 1},
		{"ignores TERM", "trap '' TERM; sleep SECONDS & while :; do sleep SECONDS; done", sdk.ErrTimeout, sdk.CauseTimeout, 50 * time.Millisecond, "SIGKILL", 2},
		{"sessions of their own", "setsid sleep SECONDS & (setsid setsid sleep SECONDS &) ; sleep SECONDS", sdk.ErrCancelled, sdk.CauseCancelled, time.Minute, "SIGTERM", 3},
		{"too much output", "exec sleep SECONDS", sdk.ErrOutputLimit, sdk.CauseOutput, time.Minute, "SIGTERM", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSandbox(t, sdk.Spec{})
			seconds := marker(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			started := func() {
				go func() {
					for len(alive(t, seconds)) < c.procs && ctx.Err() == nil {
						time.Sleep(time.Millisecond) // polls for the command's own process
					}
					cancel(c.cause)
				}()
			}
			r := run(t, ctx, s, &sdk.Command{Argv: []string{"sh", "-c", strings.ReplaceAll(c.script, "SECONDS", seconds)}, Grace: c.grace, Started: started})
			if r.Cause != c.want || r.Signal != c.signal {
				t.Errorf("got %+v", r.Exit)
			}
			if left := alive(t, seconds); len(left) > 0 {
				t.Errorf("processes %v are left", left)
			}
		})
	}
}

func TestSandboxLeavesNoDaemon(t *testing.T) {
	s := newSandbox(t, sdk.Spec{})
	seconds := marker(t)
	r := sh(t, s, "(setsid sleep "+seconds+" >/dev/null 2>&1 &); exit 3")
	if r.Code != 3 {
		t.Errorf("got %+v", r.Exit)
	}
	if left := alive(t, seconds); len(left) > 0 {
		t.Errorf("processes %v outlive their command", left)
	}
}

func TestSandboxDeliversSignals(t *testing.T) {
	s := newSandbox(t, sdk.Spec{})
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	signals, text := make(chan int, 1), make(chan string, 1)
	go func() {
		defer r.Close()
		in := bufio.NewReader(r)
		_, _ = in.ReadString('\n') // the trap is set
		signals <- int(unix.SIGUSR1)
		rest, _ := io.ReadAll(in)
		text <- string(rest)
	}()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	exit, err := s.Exec(t.Context(), &sdk.Command{
		Argv:  []string{"sh", "-c", "trap 'echo got; exit 9' USR1; echo ready; while :; do sleep 0.01; done"},
		Stdin: null, Stdout: w, Stderr: null, Signals: signals,
	})
	w.Close()
	if err != nil || exit.Code != 9 {
		t.Errorf("got %+v, %v", exit, err)
	}
	if got := <-text; got != "got\n" {
		t.Errorf("printed %q", got)
	}
}
