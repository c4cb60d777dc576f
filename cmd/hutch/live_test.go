package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/hutch-run/hutch/host/diag"
)

// live is hutch as a process that goes on while the test talks to it.
type live struct {
	*exec.Cmd
	stdout, stderr *bufio.Reader
}

func env(t *testing.T, backends string) []string {
	e := append(os.Environ(), "HUTCH_HOME="+t.TempDir(), "HUTCH_BACKEND_PATH="+backends, "TERM=xterm")
	if served {
		e = append(e, "XDG_RUNTIME_DIR="+serve(t, e))
	}
	return e
}

func start(t *testing.T, environ []string, args ...string) *live {
	t.Helper()
	l := &live{Cmd: exec.Command("hutch", args...)}
	l.Env = environ
	out, err := l.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	errs, err := l.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	l.stdout, l.stderr = bufio.NewReader(out), bufio.NewReader(errs)
	if err := l.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Process.Kill() })
	return l
}

// expect reads lines until one contains text.
func expect(t *testing.T, r *bufio.Reader, text string) {
	t.Helper()
	var seen strings.Builder
	for {
		line, err := r.ReadString('\n')
		seen.WriteString(line)
		if strings.Contains(line, text) {
			return
		}
		if err != nil {
			t.Fatalf("no %q in:\n%s", text, &seen)
		}
	}
}

func (l *live) end(t *testing.T, want int) {
	t.Helper()
	rest, _ := io.ReadAll(l.stderr)
	err := l.Wait()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		t.Fatal(err)
	}
	if got := l.ProcessState.ExitCode(); got != want {
		t.Fatalf("ended with %d (%v), want %d; stderr: %s", got, err, want, rest)
	}
}

func TestInterrupt(t *testing.T) {
	backends := buildBackends(t, "fake")
	for _, tc := range []struct {
		sig  syscall.Signal
		want int
	}{{syscall.SIGINT, 130}, {syscall.SIGTERM, 143}, {syscall.SIGHUP, 129}, {syscall.SIGQUIT, 131}} { // L11: no dump of goroutines
		t.Run(tc.sig.String(), func(t *testing.T) {
			e := env(t, backends)
			l := start(t, e, "run", "--backend", "fake", "--", "sh", "-c", "echo ready; sleep 60")
			expect(t, l.stdout, "ready")
			if err := l.Process.Signal(tc.sig); err != nil {
				t.Fatal(err)
			}
			expect(t, l.stderr, "hutch: stopping")
			l.end(t, tc.want)
			show := exec.Command("hutch", "show", "-o", "json")
			show.Env = e
			out, err := show.CombinedOutput()
			if err != nil || !strings.Contains(string(out), `"cause": "cancelled"`) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestL11SignalInTheFirstMilliseconds sends a signal to a hutch that has just been started.
func TestL11SignalInTheFirstMilliseconds(t *testing.T) {
	e := env(t, buildBackends(t, "fake"))
	for i := range 12 {
		l := start(t, e, "run", "--backend", "fake", "--", "sleep", "60")
		for until := time.Now().Add(time.Duration(i) * time.Millisecond); time.Now().Before(until); { // another moment each time
		}
		if err := l.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		words, _ := io.ReadAll(l.stderr)
		_ = l.Wait()
		// Before Go runs its first package, the signal itself ends the process, which has nothing then.
		status := l.ProcessState.Sys().(syscall.WaitStatus)
		if raw := status.Signaled() && status.Signal() == syscall.SIGTERM && len(words) == 0; !raw && status.ExitStatus() != 143 {
			t.Errorf("after %d ms: %v, stderr: %s", i, l.ProcessState, words)
		}
	}
	gc := start(t, e, "gc")
	out, _ := io.ReadAll(gc.stdout)
	if gc.end(t, 0); strings.Contains(string(out), "sandbox ") {
		t.Errorf("a sandbox was left:\n%s", out)
	}
}

// TestL11SignalByTheStartedBackend has the backend signal hutch as the first thing that it does: hutch catches signals
// before it starts anything.
func TestL11SignalByTheStartedBackend(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/hutch-backend-early", []byte("#!/bin/sh\nkill -TERM $PPID\nexec sleep 60\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	e := env(t, dir)
	for range 8 {
		start(t, e, "run", "--backend", "early", "--", "true").end(t, 143)
	}
}

// TestTerminatedTwiceAtOnce is what timeout(1) does: it signals the process, and then the group that the process is in.
func TestTerminatedTwiceAtOnce(t *testing.T) {
	e := env(t, buildBackends(t, "fake"))
	l := start(t, e, "run", "--backend", "fake", "--", "sh", "-c", `trap "sleep 1; exit" TERM; echo ready; while :; do sleep 0.1; done`)
	expect(t, l.stdout, "ready")
	if err := l.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	expect(t, l.stderr, "hutch: stopping")
	if err := l.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	l.end(t, 143)
	show := exec.Command("hutch", "show", "-o", "json")
	show.Env = e
	if out, err := show.CombinedOutput(); err != nil || !strings.Contains(string(out), `"cause": "cancelled"`) {
		t.Errorf("the run has no result: %v\n%s", err, out)
	}
}

// TestInterruptTwice has a program that does not stop when it is asked to.
func TestInterruptTwice(t *testing.T) {
	e := env(t, buildBackends(t, "fake"))
	l := start(t, e, "run", "--backend", "fake", "--", "sh", "-c", `trap "" TERM INT; echo ready; while :; do sleep 0.1; done`)
	expect(t, l.stdout, "ready")
	for _, said := range []string{"stopping; once more does not wait for that", "hutch gc removes"} {
		if err := l.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		expect(t, l.stderr, said)
	}
	l.end(t, 130)
	gc := start(t, e, "gc")
	out, err := io.ReadAll(gc.stdout)
	if gc.end(t, 0); err != nil || !strings.HasPrefix(string(out), "sandbox ") {
		t.Errorf("gc says %q, %v", out, err)
	}
}

// TestNothingMovesOffTerminal checks that pipes get no colour, no progress, and the bytes of the program as they are.
func TestNothingMovesOffTerminal(t *testing.T) {
	l := start(t, env(t, buildBackends(t, "fake")), "run", "--backend", "fake", "--", "printf", `\033]0;title\007\033[31mred\033[0m`)
	out, err := io.ReadAll(l.stdout)
	if err != nil {
		t.Fatal(err)
	}
	errs, _ := io.ReadAll(l.stderr)
	l.end(t, 0)
	if string(out) != "\x1b]0;title\a\x1b[31mred\x1b[0m" || len(errs) != 0 {
		t.Errorf("stdout %q, stderr %q", out, errs)
	}
}

// TestTerminalIsSafe checks that a terminal gets colours, and every other escape sequence made visible.
func TestTerminalIsSafe(t *testing.T) {
	out := onTerminal(t, "run", "--backend", "fake", "--", "printf", `\033]0;title\007\033[31mred\033[0m\n`)
	if strings.Contains(out, "\x1b]0;") || strings.Contains(out, "\a") {
		t.Errorf("the title reached the terminal: %q", out)
	}
	if !strings.Contains(out, `\x1b]0;title\x07`) || !strings.Contains(out, "\x1b[31mred\x1b[0m") {
		t.Errorf("got %q", out)
	}
}

// TestLogsAreSafe does the same for what was recorded.
func TestLogsAreSafe(t *testing.T) {
	e := env(t, buildBackends(t, "fake"))
	l := start(t, e, "run", "--backend", "fake", "--", "printf", `\033[2Jgone\n`)
	_, _ = io.ReadAll(l.stdout)
	l.end(t, 0)
	if out := onTTY(t, e, "logs"); !strings.Contains(out, `\x1b[2Jgone`) {
		t.Errorf("got %q", out)
	}
}

func onTerminal(t *testing.T, args ...string) string {
	t.Helper()
	return onTTY(t, env(t, buildBackends(t, "fake")), args...)
}

// onTTY runs hutch on its own terminal, and returns what that got.
func onTTY(t *testing.T, environ []string, args ...string) string {
	t.Helper()
	cmd := exec.Command("hutch", args...)
	cmd.Env = environ
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: 120})
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	out, _ := io.ReadAll(tty) // ends with EIO when the last process closes the terminal
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// TestInteractive types into a program that has its own terminal.
func TestInteractive(t *testing.T) {
	cmd := exec.Command("hutch", "run", "--backend", "fake", "-it", "--", "sh", "-c",
		`test -t 0 && test -t 1 && echo "a terminal of $(stty size)"; read line; echo "got <$line>"; exit 7`)
	cmd.Env = env(t, buildBackends(t, "fake"))
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 33, Cols: 77})
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	r := bufio.NewReader(tty)
	expect(t, r, "a terminal of 33 77")
	if _, err := tty.WriteString("typed\r"); err != nil {
		t.Fatal(err)
	}
	expect(t, r, "got <typed>")
	_, _ = io.Copy(io.Discard, r)
	var ended *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &ended) || ended.ExitCode() != 7 {
		t.Fatalf("ended with %v, want 7", err)
	}
}

func TestInteractiveNeedsTerminal(t *testing.T) {
	l := start(t, env(t, buildBackends(t, "fake")), "run", "--backend", "fake", "-it", "--", "true")
	expect(t, l.stderr, "-it needs a terminal")
	l.end(t, 125)
}

// TestInterruptIsACancellation: whatever is busy then says that it was cancelled, and not that something is broken.
func TestInterruptIsACancellation(t *testing.T) {
	if err := fmt.Errorf("making a sandbox: %w", errInterrupted); !errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v is no cancellation", err)
	}
}

// TestExitCodeAfterSignal: what a signal kept from being done ends with the signal's code, however the error is called
// by the time it arrives here; an answer and a program's own code stay what they are.
func TestExitCodeAfterSignal(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		sig  syscall.Signal
		want int
	}{
		"not interrupted":           {errors.New("the connection to the backend broke"), 0, 125},
		"the backend was killed":    {errors.New("the connection to the backend broke"), syscall.SIGINT, 130},
		"the context has ended":     {fmt.Errorf("removing a: %w", errInterrupted), syscall.SIGTERM, 143},
		"what was said already":     {exit(exitFailure), syscall.SIGINT, 130},
		"the answer is no":          {exit(exitNo), syscall.SIGINT, 1},
		"the program ended anyhow":  {exit(0), syscall.SIGINT, 0},
		"a finding about run files": {diag.Diagnostics{{Severity: diag.Error, Summary: "cut short"}}, syscall.SIGINT, 130},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUI(os.Stdin, os.Stdout, os.Stderr)
			u.interrupted.Store(int32(tc.sig))
			if got := u.fail(tc.err); got != tc.want {
				t.Errorf("exit code %d, want %d", got, tc.want)
			}
		})
	}
}
