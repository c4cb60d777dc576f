package run

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/sdk"
)

func TestHowItEnded(t *testing.T) {
	for name, tc := range map[string]struct {
		script, more string
		argv         string // instead of a script
		cause        sdk.Cause
		code         *int
		status       int
		signal       string
	}{
		"zero":                           {script: "true", cause: sdk.CauseExited, code: new(0), status: 0},
		"its own code":                   {script: "exit 7", cause: sdk.CauseExited, code: new(7), status: 7},
		"a code that looks like hutch's": {script: "exit 124", cause: sdk.CauseExited, code: new(124), status: 124},
		"a signal":                       {script: "kill -SEGV $$", cause: sdk.CauseSignaled, status: 139, signal: "SIGSEGV"},
		"timeout":                        {script: "sleep 60", more: `limits { timeout = "50ms" }`, cause: sdk.CauseTimeout, status: 124, signal: "SIGKILL"},
		"not found":                      {argv: `["/no/such/thing"]`, cause: sdk.CauseSetupFailed, status: 127},
		"not executable":                 {argv: `["/etc/passwd"]`, cause: sdk.CauseSetupFailed, status: 126},
		"too much output":                {script: "yes", more: `limits { output_total = "1MiB" }`, cause: sdk.CauseOutput, status: 137, signal: "SIGKILL"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, &plain{})
			src := shell(tc.script, tc.more)
			if tc.argv != "" {
				src = "run \"r\" {\n  backend \"plain\" {}\n command = " + tc.argv + "\n}\n"
			}
			r := w.run(src, Streams{})
			if r.Cause != tc.cause || r.Status != tc.status || r.Signal != tc.signal || !cmp.Equal(r.ExitCode, tc.code) {
				t.Errorf("cause %s, status %d, signal %q, code %v, error %v", r.Cause, r.Status, r.Signal, r.ExitCode, r.Error)
			}
			if r.OK != (tc.status == 0) || r.TimedOut != (tc.cause == sdk.CauseTimeout) || r.NotStarted != (tc.status == 126 || tc.status == 127) {
				t.Errorf("%+v", r)
			}
		})
	}
}

func TestCancelStopsTheCommandAndCleansUp(t *testing.T) {
	p := &plain{}
	w := newWorld(t, p)
	ctx, cancel := context.WithCancel(context.Background())
	started := writerFunc(func(b []byte) (int, error) { cancel(); return len(b), nil })
	r, err := w.runner().Run(ctx, w.load(shell("echo x > $HUTCH_OUTPUT/x; echo up; exec sleep 60", ""))[0], Streams{Stdout: started})
	if err != nil {
		t.Fatal(err)
	}
	w.check(r)
	if r.Cause != sdk.CauseCancelled || r.Status != 130 || r.OK || len(r.Outputs) != 1 || len(p.alive) != 0 {
		t.Errorf("%+v, alive %v", r, p.alive)
	}
	// Cancelled before anything was made.
	r, err = w.runner().Run(ctx, w.load(shell("true", ""))[0], Streams{})
	if err != nil {
		t.Fatal(err)
	}
	w.check(r)
	if r.Cause != sdk.CauseCancelled || r.Status != 130 || len(p.specs) != 1 {
		t.Errorf("%+v", r)
	}
}

// What follows a command has its own time, however long the command took.
func TestALongRunIsCleanedUp(t *testing.T) {
	t.Parallel()
	p := &plain{}
	w := newWorld(t, p)
	r := w.runner()
	r.patience.step = 2 * time.Second
	d := w.load(shell("read line; echo $line > $HUTCH_OUTPUT/x", ""))[0]
	res, err := r.Run(t.Context(), d, Streams{Stdin: after{r.patience.step * 5 / 4, strings.NewReader("late\n")}})
	if err != nil {
		t.Fatal(err)
	}
	w.check(res)
	if !res.OK || len(res.Outputs) != 1 || len(res.Leaks) > 0 || len(p.alive) > 0 {
		t.Errorf("%s, error %v, outputs %v, leaks %q, alive %v", res.Cause, res.Error, res.Outputs, res.Leaks, p.alive)
	}
}

// after is a reader that begins after a while.
type after struct {
	d time.Duration
	io.Reader
}

func (a after) Read(p []byte) (int, error) {
	<-time.After(a.d)
	return a.Reader.Read(p)
}

// A user who interrupts does not wait for a backend that hangs.
func TestCancelDoesNotWaitForABackendThatHangs(t *testing.T) {
	hang := make(chan struct{})
	p := &plain{stuck: hang}
	w := newWorld(t, p)
	t.Cleanup(func() { close(hang) }) // before the backend is closed
	r := w.runner()
	r.patience.finished = 100 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	started := writerFunc(func(b []byte) (int, error) { cancel(); return len(b), nil })
	res, err := r.Run(ctx, w.load(shell("echo up; exec sleep 60", ""))[0], Streams{Stdout: started})
	if err != nil {
		t.Fatal(err)
	}
	w.check(res)
	if res.Cause != sdk.CauseCancelled || len(res.Leaks) != 1 || !strings.Contains(res.Leaks[0], "no answer within 100ms after it was cancelled") {
		t.Errorf("%s, leaks %q", res.Cause, res.Leaks)
	}
	if intents, err := w.store.Intents(); err != nil || len(intents) != 1 || len(intents[0].Handle) == 0 {
		t.Errorf("gc does not know: %v %+v", err, intents)
	}
}

func TestFaultsOfTheBackend(t *testing.T) {
	limit := &sdk.Error{Reason: sdk.ReasonLimit, Limit: sdk.LimitMemory, Summary: "memory cannot be held", Fix: "delegate a cgroup"}
	for name, tc := range map[string]struct {
		p       *plain
		more    string
		cause   sdk.Cause
		status  int
		summary string
		line    int // of a diagnostic; 0 for none
		made    int // sandboxes
	}{
		"create fails": {p: &plain{createErr: &sdk.Error{Reason: sdk.ReasonMissing, Summary: "no such image", Fix: "pull it"}},
			cause: sdk.CauseSetupFailed, status: 125, summary: "no such image", made: 1},
		"create has a bug": {p: &plain{createErr: errors.New("nil map")}, cause: sdk.CauseBackend, status: 125, summary: "nil map", made: 1},
		"create refuses a limit": {p: &plain{createErr: limit}, more: "  limits {\n    memory = \"1MiB\"\n  }", cause: sdk.CauseSetupFailed, status: 125,
			summary: "memory cannot be held", line: 5, made: 1},
		"exec breaks": {p: &plain{execErr: errors.New("the pipe burst")}, cause: sdk.CauseBackend, status: 125, summary: "the pipe burst", made: 1},
		"exec does not know": {p: &plain{exit: &sdk.Exit{Cause: sdk.CauseBackend, Evidence: "lost it"}}, cause: sdk.CauseBackend, status: 125,
			summary: "could not say how", made: 1},
		"the sandbox holds fewer limits than planned": {p: &plain{ready: func(r *sdk.Ready) { r.Holds = r.Holds[:1] }}, more: "  limits {\n    memory = \"1MiB\"\n  }",
			cause: sdk.CauseSetupFailed, status: 125, summary: "does not hold memory", line: 5, made: 1},
		"outputs cannot be had": {p: &plain{getErr: errors.New("no tar")}, cause: sdk.CauseBackend, status: 125, summary: "the outputs could not be collected", made: 1},
		"outputs are no tar":    {p: &plain{tar: []byte("surely this is not a tar archive" + strings.Repeat("x", 1000))}, cause: sdk.CauseBackend, status: 125, summary: "outputs could not be collected", made: 1},
		"the plan finds a wrong value": {p: &plain{diags: []sdk.Diagnostic{{Severity: sdk.SeverityError, Summary: "no such image", Path: "image"}}},
			cause: sdk.CauseSetupFailed, status: 125, summary: "the run file has errors", line: 2},
		"the plan finds that something is missing": {p: &plain{diags: []sdk.Diagnostic{{Severity: sdk.SeverityError, Summary: "no limactl"}}},
			cause: sdk.CauseSetupFailed, status: 125, summary: `backend "plain" is not able to run it`, line: 2},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.p)
			src := shell("exit 0", tc.more)
			if name == "the plan finds a wrong value" {
				src = strings.Replace(src, `backend "plain" {}`, `backend "plain" { image = "x" }`, 1)
			}
			r := w.run(src, Streams{})
			if r.OK || r.Cause != tc.cause || r.Status != tc.status || r.Error == nil || !strings.Contains(r.Error.Summary, tc.summary) {
				t.Fatalf("cause %s, status %d, error %+v", r.Cause, r.Status, r.Error)
			}
			if tc.line > 0 && (len(r.Error.Diagnostics) != 1 || r.Error.Diagnostics[0].Range == nil || r.Error.Diagnostics[0].Range.Start.Line != tc.line) {
				t.Errorf("diagnostics: %+v", r.Error.Diagnostics)
			}
			if len(tc.p.specs) != tc.made || len(tc.p.alive) != 0 {
				t.Errorf("%d made, alive %v", len(tc.p.specs), tc.p.alive)
			}
		})
	}
}

func TestWhatCannotBeDestroyedIsSaidAndKeptForGC(t *testing.T) {
	p := &plain{destroyErr: &sdk.Error{Reason: sdk.ReasonUnavailable, Summary: "the far end sleeps"}}
	w := newWorld(t, p)
	r := w.run(shell("exit 3", ""), Streams{})
	if r.Cause != sdk.CauseExited || r.Status != 3 || len(r.Leaks) != 1 || !strings.Contains(r.Leaks[0], "the far end sleeps") {
		t.Errorf("%+v", r)
	}
	intents, err := w.store.Intents()
	if err != nil || len(intents) != 1 || !strings.Contains(string(intents[0].Handle), `"here"`) || intents[0].Backend != "plain" {
		t.Errorf("%v %+v", err, intents)
	}
}

func TestSignalsArePassedOn(t *testing.T) {
	w := newWorld(t, &plain{})
	signals := make(chan int, 1)
	once := sync.OnceFunc(func() { signals <- int(syscall.SIGUSR1) })
	up := writerFunc(func(b []byte) (int, error) { once(); return len(b), nil })
	r := w.run(shell(`trap 'echo got it; exit 9' USR1; echo up; while :; do sleep 0.01; done`, ""), Streams{Stdout: up, Signals: signals})
	if r.Status != 9 || r.Stdout.Text != "up\ngot it\n" {
		t.Errorf("%d %q", r.Status, r.Stdout.Text)
	}
}

func TestAnRlimitThatWasHitIsNamed(t *testing.T) {
	for held, want := range map[string]string{
		"rlimit RLIMIT_NPROC": "exited (pids is held by an rlimit here, which counts nothing: hutch doctor says what is missing)",
		"cgroup v2":           "exited",
	} {
		r := &result.Result{Cause: sdk.CauseExited, Limits: []result.Limit{{Limit: sdk.LimitFiles, HeldBy: "rlimit RLIMIT_NOFILE"}, {Limit: sdk.LimitPIDs, HeldBy: held}}}
		if got := string(r.Cause) + uncounted(r, []string{"timeout", "pids"}); got != want {
			t.Errorf("held by %s: %s", held, got)
		}
		if got := uncounted(&result.Result{Cause: sdk.CauseTimeout, Limits: r.Limits}, []string{"pids"}); got != "" {
			t.Errorf("timeout%s", got)
		}
	}
}
