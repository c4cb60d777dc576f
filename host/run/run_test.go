package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/sdk"
)

func TestRunFromFileToResult(t *testing.T) {
	p := &plain{}
	w := newWorld(t, p)
	if err := os.WriteFile(filepath.Join(w.dir, "lib.sh"), []byte("greet() { echo \"hello $1\"; }\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	r := w.run(`
run "report" {
  backend "plain" {}
  file "main.sh" { content = ". \"$HUTCH_INPUT/lib.sh\"; greet \"$1\"; echo oops >&2; cat; mkdir $HUTCH_OUTPUT/d; echo '{}' > $HUTCH_OUTPUT/d/a.json; echo x > $HUTCH_OUTPUT/b.txt\n" }
  file "lib.sh"  { source = "lib.sh" }
  entrypoint = "main.sh"
  args       = ["world"]
  stdin      = "from stdin"
  env        = { A = "1" }
  outputs    = ["**/*.json"]
  limits { memory = "64MiB" }
}`, Streams{Stdout: &out, Stderr: &errs})
	if !r.OK || r.Status != 0 || r.Cause != sdk.CauseExited || *r.ExitCode != 0 {
		t.Fatalf("%+v", r)
	}
	if out.String() != "hello world\nfrom stdin" || errs.String() != "oops\n" {
		t.Errorf("live: %q, %q", out.String(), errs.String())
	}
	if r.Stdout.Text != out.String() || r.Stdout.Bytes != int64(out.Len()) || r.Stdout.Dropped != 0 || r.Stdout.Truncated || r.Stderr.Text != "oops\n" {
		t.Errorf("%+v %+v", r.Stdout, r.Stderr)
	}
	if len(r.Outputs) != 1 || r.Outputs[0].Path != "d/a.json" || r.Outputs[0].Size != 3 {
		t.Errorf("outputs: %+v", r.Outputs)
	}
	if b, err := os.ReadFile(filepath.Join(r.Dir, "output", "d", "a.json")); string(b) != "{}\n" {
		t.Errorf("%q %v", b, err)
	}
	if b, err := os.ReadFile(filepath.Join(r.Dir, "code", "lib.sh")); !strings.HasPrefix(string(b), "greet()") {
		t.Errorf("%q %v", b, err)
	}
	if p.specs[0].Input != filepath.Join(r.Dir, "code") || p.specs[0].Network != sdk.NetworkNone || p.specs[0].Limits.Timeout != DefaultTimeout {
		t.Errorf("spec: %+v", p.specs[0].Spec)
	}
	if want := []string{"sh", filepath.Join(r.Dir, "code/main.sh"), "world"}; !slices.Equal(r.Command, want) {
		t.Errorf("command: %q", r.Command)
	}
	var limits []string
	for _, l := range r.Limits {
		limits = append(limits, string(l.Limit)+"|"+l.Value+"|"+map[bool]string{true: "asked", false: "default"}[l.Asked])
	}
	if diff := cmp.Diff([]string{"timeout|10m0s|default", "memory|67108864|asked", "output|16MiB|default"}, limits); diff != "" {
		t.Error(diff)
	}
	if len(p.alive) != 0 {
		t.Errorf("sandboxes are left: %v", p.alive)
	}
	rec, err := w.store.Load(r.ID)
	if err != nil {
		t.Fatal(err)
	}
	events, err := rec.Events()
	if err != nil {
		t.Fatal(err)
	}
	var types []string
	for _, e := range events {
		types = append(types, string(e.Type))
	}
	want := []string{"run.begin", "plan", "code", "sandbox.create", "sandbox.ready", "exec.start", "exec.end", "outputs", "sandbox.destroy", "run.end"}
	if diff := cmp.Diff(want, types); diff != "" {
		t.Error(diff)
	}
	if r.Events.Head != events[len(events)-1].Hash || r.Events.Head == "" {
		t.Errorf("the result names head %q", r.Events.Head)
	}
}

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

// Whoever interrupts does not wait for a backend that hangs.
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
		t.Errorf("gc is not told: %v %+v", err, intents)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

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
		"the sandbox holds less than was planned": {p: &plain{ready: func(r *sdk.Ready) { r.Holds = r.Holds[:1] }}, more: "  limits {\n    memory = \"1MiB\"\n  }",
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

func TestKeep(t *testing.T) {
	p := &plain{}
	w := newWorld(t, p)
	w.opt.Keep = true
	r := w.run(shell("exit 3", ""), Streams{})
	if !r.Kept || !p.alive[r.ID] || !p.specs[0].Keep || p.destroys.Load() != 0 {
		t.Errorf("kept %v, alive %v", r.Kept, p.alive)
	}
	if intents, err := w.store.Intents(); err != nil || len(intents) != 0 {
		t.Errorf("%v %+v", err, intents)
	}
	info, err := w.store.FindSandbox(r.Sandbox.Name)
	if err != nil || info.State != store.SandboxReady || info.ID != r.ID || info.MadeBy != r.ID || info.Name != "r" || len(info.Handle) == 0 {
		t.Errorf("%v %+v", err, info)
	}
	rec, err := w.store.Load(r.ID)
	if err != nil || rec.Sandbox != info.Name {
		t.Errorf("%v %+v", err, rec)
	}
}

func TestKeepLeavesNothingOfWhatBroke(t *testing.T) {
	for name, p := range map[string]*plain{
		"create": {createErr: &sdk.Error{Reason: sdk.ReasonQuota, Summary: "no room"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, p)
			w.opt.Keep = true
			if r := w.run(shell("exit 3", ""), Streams{}); r.Kept || r.Sandbox != nil || r.Error == nil {
				t.Errorf("%+v", r)
			}
			if list, err := w.store.Sandboxes(); err != nil || len(list) != 0 || len(p.alive) != 0 {
				t.Errorf("%v %+v, alive %v", err, list, p.alive)
			}
		})
	}
}

func TestOutputKeepsTheTail(t *testing.T) {
	w := newWorld(t, &plain{})
	var live bytes.Buffer
	r := w.run(shell(`i=0; while [ $i -lt 1000 ]; do echo line $i; i=$((i+1)); done; printf '\377\376end\303'`, `limits { output = "1KiB" }`), Streams{Stdout: &live})
	if r.Stdout.Bytes != int64(live.Len()) || r.Stdout.Bytes-r.Stdout.Dropped != 1024 || !strings.HasSuffix(r.Stdout.Text, "line 999\n\ufffdend\ufffd") {
		t.Errorf("%d bytes, %d dropped, %q", r.Stdout.Bytes, r.Stdout.Dropped, r.Stdout.Text[len(r.Stdout.Text)-30:])
	}
	b, err := os.ReadFile(filepath.Join(r.Dir, "stdout.log"))
	if err != nil || !bytes.Equal(b, live.Bytes()[live.Len()-1024:]) {
		t.Errorf("the log is not the tail of the stream: %d bytes, %v", len(b), err)
	}
}

func TestNobodyReadsAnyMore(t *testing.T) {
	w := newWorld(t, &plain{})
	closed := writerFunc(func([]byte) (int, error) { return 0, syscall.EPIPE })
	r := w.run(shell("exec yes", `limits { timeout = "60s" }`), Streams{Stdout: closed})
	if r.Cause != sdk.CauseSignaled || r.Signal != "SIGPIPE" || r.Status != 141 {
		t.Errorf("%s %s %d %v", r.Cause, r.Signal, r.Status, r.Error)
	}
	if !slices.ContainsFunc(r.Notes, func(n string) bool { return strings.Contains(n, "nobody read stdout") }) {
		t.Errorf("notes: %q", r.Notes)
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

const secret = "hunter2-very-secret"

// A secret with characters that a quotation changes, and one that is too short to be looked for in text, in every place
// where a program or a message could bring them into the record.
func TestOddSecretsStayOutOfWhatIsWritten(t *testing.T) {
	w := newWorld(t, &plain{})
	r := w.run(`
variable "pw" {
  type      = string
  default   = "od\"d\\pass\tword"
  sensitive = true
}
variable "pin" {
  type      = string
  default   = "q7z"
  sensitive = true
}
run "r" {
  backend "plain" {}
  command = ["sh", "-c", "printf %s \"$1\"; cd $HUTCH_OUTPUT; echo made > \"$1.txt\"; ln -s / \"$1.link\"", "sh", var.pw, var.pin]
  outputs = ["*pass*"]
  expect {
    outputs = ["*pass*.txt", "nothing"]
    stdout {
      equals   = "x${var.pw}"
      contains = ["no ${var.pw}"]
      excludes = [var.pw]
      matches  = ["${var.pin}9"]
    }
  }
}`, Streams{})
	if len(r.ExpectFailures) != 6 || r.Stdout.Text != "(sensitive)" {
		t.Errorf("%q %+v %+v", r.Stdout.Text, r.ExpectFailures, r.Error)
	}
	if len(r.Outputs) != 0 { // a tab is not taken in a name, and what is said about it tells nothing
		t.Errorf("%+v", r.Outputs)
	}
	for _, name := range []string{"result.json", "events.jsonl", "definition.json"} {
		b, err := os.ReadFile(filepath.Join(r.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"pass", "od\\\"d", `"q7z"`} {
			for line := range bytes.Lines(bytes.ReplaceAll(b, []byte("*pass*"), nil)) {
				if bytes.Contains(line, []byte(part)) {
					t.Errorf("%s holds %s: %.300s", name, part, line)
				}
			}
		}
	}
}

func TestOutputNamedByASecretIsCollectedUnderAnotherName(t *testing.T) {
	w := newWorld(t, &plain{})
	r := w.run(`
variable "pw" {
  type      = string
  default   = "`+secret+`"
  sensitive = true
}
run "r" {
  backend "plain" {}
  command = ["sh", "-c", "echo made > \"$HUTCH_OUTPUT/a $1.txt\"", "sh", var.pw]
  expect { outputs = ["a *very*.txt"] }
}`, Streams{})
	if !r.OK || len(r.Outputs) != 1 || r.Outputs[0].Path != "a (sensitive).txt" {
		t.Fatalf("%+v %+v", r.Outputs, r.ExpectFailures)
	}
	if b, err := os.ReadFile(filepath.Join(r.Dir, "output", r.Outputs[0].Path)); err != nil || string(b) != "made\n" {
		t.Errorf("%q %v", b, err)
	}
	for _, name := range []string{"result.json", "events.jsonl"} {
		if b, err := os.ReadFile(filepath.Join(r.Dir, name)); err != nil || bytes.Contains(b, []byte(secret)) {
			t.Errorf("%s %v: %s", name, err, b)
		}
	}
	if rep, err := w.store.Verify(context.Background(), r.ID); err != nil || !rep.OK {
		t.Errorf("%v %+v", err, rep)
	}
}

func TestSecretsStayOutOfWhatIsWritten(t *testing.T) {
	p := &plain{}
	w := newWorld(t, p)
	r := w.run(`
variable "pw" {
  type      = string
  default   = "`+secret+`"
  sensitive = true
}
run "r" {
  backend "plain" { token = var.pw }
  file "plain.txt" { content = "no secret" }
  file "key.txt"   { content = "key=${var.pw}\n" }
  command = ["sh", "-c", "cat $HUTCH_INPUT/key.txt $HUTCH_INPUT/plain.txt; echo $PW >&2; exit 4", "x${var.pw}"]
  env     = { PW = var.pw }
  expect {
    exit_code = 0
    stdout { contains = ["not ${var.pw}"] }
  }
}`, Streams{})
	if r.Status != 4 || r.Stdout.Text != "(sensitive)no secret" || r.Stderr.Text != "(sensitive)\n" {
		t.Errorf("%d %q %q %v", r.Status, r.Stdout.Text, r.Stderr.Text, r.Error)
	}
	if b, _ := os.ReadFile(filepath.Join(r.Dir, "stdout.log")); !strings.Contains(string(b), secret) {
		t.Errorf("the log is not what the program wrote: %q", b)
	}
	if _, err := os.Stat(filepath.Join(r.Dir, "code", "plain.txt")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(p.specs[0].Input); err == nil {
		t.Errorf("%s, which holds a secret, outlives the run", p.specs[0].Input)
	}
	var leaks []string
	err := filepath.WalkDir(filepath.Dir(filepath.Dir(r.Dir)), func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(name, ".log") {
			return err
		}
		b, err := os.ReadFile(name)
		if bytes.Contains(b, []byte(secret)) {
			leaks = append(leaks, name)
		}
		return err
	})
	if err != nil || len(leaks) > 0 {
		t.Errorf("%v: the secret is in %q", err, leaks)
	}
	pl, err := w.runner().Plan(context.Background(), w.load(`
variable "pw" {
  type      = string
  default   = "` + secret + `"
  sensitive = true
}
variable "pin" { # too short to be looked for inside of text
  type      = string
  default   = "zq7"
  sensitive = true
}
run "r" {
  backend "plain" {}
  command = ["echo", var.pw, var.pin]
  env     = { PW = var.pw, PIN = var.pin }
}`)[0])
	if err != nil {
		t.Fatal(err)
	}
	j, err := json.Marshal(pl)
	var text bytes.Buffer
	if err2 := pl.WriteText(&text); err != nil || err2 != nil || strings.Contains(string(j)+text.String(), secret) || strings.Contains(string(j)+text.String(), "zq7") {
		t.Errorf("%v %v: the plan shows the secret: %s", err, err2, text.String())
	}
}

func TestAnRlimitThatWasHitIsNamed(t *testing.T) {
	for held, want := range map[string]string{
		"rlimit RLIMIT_AS": "exited (memory is held by an rlimit here, which counts nothing: hutch doctor says what is missing)",
		"cgroup v2":        "exited",
	} {
		r := &result.Result{Cause: sdk.CauseExited, Limits: []result.Limit{{Limit: sdk.LimitPIDs, HeldBy: "rlimit NPROC"}, {Limit: sdk.LimitMemory, HeldBy: held}}}
		if got := string(r.Cause) + uncounted(r, []string{"timeout", "oom"}); got != want {
			t.Errorf("held by %s: %s", held, got)
		}
		if got := uncounted(&result.Result{Cause: sdk.CauseTimeout, Limits: r.Limits}, []string{"oom"}); got != "" {
			t.Errorf("timeout%s", got)
		}
	}
}

func TestExpect(t *testing.T) {
	for name, tc := range map[string]struct {
		script, expect string
		failed         []string
		status         int
	}{
		"code":                {"exit 3", `exit_code = 3`, nil, 0},
		"another code":        {"exit 4", `exit_code = 3`, []string{"exit_code"}, 4},
		"zero although":       {"exit 0", `exit_code = 3`, []string{"exit_code"}, 1},
		"zero is the default": {"echo hi; exit 2", "stdout { contains = [\"hi\"] }", []string{"exit_code"}, 2},
		"cause":               {"kill -KILL $$", `cause = "signaled"`, nil, 0},
		"causes":              {"kill -KILL $$", `cause = ["oom", "signaled"]`, nil, 0},
		"neither cause":       {"exit 3", `cause = ["oom", "signaled"]`, []string{"cause"}, 3},
		"stdout":              {"echo hello", "stdout {\n equals = \"hello\\n\"\n contains = [\"ell\"]\n excludes = [\"bye\"]\n matches = [\"^h.*o$\"]\n }", nil, 0},
		"stdout is not":       {"echo hello", "stdout {\n equals = \"x\"\n contains = [\"hello\", \"y\"]\n excludes = [\"ell\"]\n matches = [\"^z\"]\n }", []string{"stdout.equals", "stdout.contains[1]", "stdout.excludes[0]", "stdout.matches[0]"}, 1},
		"stderr empty":        {"true", "stderr { empty = true }", nil, 0},
		"stderr not empty":    {"echo x >&2", "stderr { empty = true }", []string{"stderr.empty"}, 1},
		"outputs":             {"echo > $HUTCH_OUTPUT/a.json", `outputs = ["*.json"]`, nil, 0},
		"no outputs":          {"echo > $HUTCH_OUTPUT/a.json", `outputs = ["*.json", "*.txt"]`, []string{"outputs[1]"}, 1},
		"within":              {"sleep 0.05", `within = "1ms"`, []string{"within"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, &plain{})
			r := w.run(shell(tc.script, "expect {\n"+tc.expect+"\n}"), Streams{})
			var failed []string
			for _, f := range r.ExpectFailures {
				failed = append(failed, f.What)
				if f.At == nil && f.What != "exit_code" {
					t.Errorf("%s has no place", f.What)
				}
			}
			if diff := cmp.Diff(tc.failed, failed); diff != "" {
				t.Errorf("%s\n%+v", diff, r.ExpectFailures)
			}
			if r.Status != tc.status || r.OK != (len(tc.failed) == 0) {
				t.Errorf("status %d, ok %v", r.Status, r.OK)
			}
		})
	}
}

// TestLostOutput: a program that ended with 0 did so, whatever of its output came; but nothing that is expected of a stream is
// true of a part of it.
func TestLostOutput(t *testing.T) {
	for name, tc := range map[string]struct {
		expect string
		failed []string
	}{
		"nothing expected":    {"", nil},
		"only the code":       {"expect { exit_code = 0 }", nil},
		"a text that is not":  {"expect {\n stdout {\n excludes = [\"bye\"]\n }\n }", []string{"stdout"}},
		"a text that came":    {"expect {\n stdout {\n contains = [\"hello\"]\n }\n }", []string{"stdout"}},
		"nothing":             {"expect {\n stderr {\n empty = true\n }\n }", []string{"stderr"}},
		"that they are whole": {"expect {\n stdout {}\n stderr {}\n }", []string{"stdout", "stderr"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, &plain{lost: "the line broke once"})
			r := w.run(shell("echo hello", tc.expect), Streams{})
			var failed []string
			for _, f := range r.ExpectFailures {
				failed = append(failed, f.What)
				if f.At == nil || f.Want != "whole" || f.Got != "a part of it: the line broke once" {
					t.Errorf("%+v", f)
				}
			}
			if diff := cmp.Diff(tc.failed, failed); diff != "" {
				t.Error(diff)
			}
			if r.OK != (tc.failed == nil) || r.Cause != sdk.CauseExited || *r.ExitCode != 0 || r.Stdout.Lost != "the line broke once" || r.Stderr.Lost != r.Stdout.Lost {
				t.Errorf("ok %v, %s, %+v", r.OK, r.Cause, r.Stdout)
			}
		})
	}
}

// TestWhatWasDroppedIsNotJudged: of output beyond the limit nobody knows what is not in it.
func TestWhatWasDroppedIsNotJudged(t *testing.T) {
	src := "limits { output = \"1KiB\" }\nexpect {\n stdout {\n contains = [\"end\"]\n excludes = [\"begin\"]\n }\n }"
	r := newWorld(t, &plain{}).run(shell("echo begin; i=0; while [ $i -lt 500 ]; do echo $i $i $i $i; i=$((i+1)); done; echo end", src), Streams{})
	if len(r.ExpectFailures) != 1 || r.ExpectFailures[0].What != "stdout.excludes[0]" || !strings.Contains(r.ExpectFailures[0].Got, "(only the end was kept)") {
		t.Errorf("%+v", r.ExpectFailures)
	}
}

func TestChoice(t *testing.T) {
	weak := func() *plain {
		return &plain{desc: sdk.Description{Name: "weak", Isolation: sdk.IsolationNone, Limits: []sdk.Limit{sdk.LimitTimeout}}}
	}
	for name, tc := range map[string]struct {
		backends []*plain
		src      string
		min      sdk.Isolation
		want     string   // backend; "" for none
		reasons  []string // of the candidates, in order; "" for none
	}{
		"the first that is able":    {[]*plain{{}, weak()}, "backend \"weak\" {}\nbackend \"plain\" {}\nlimits { memory = \"1MiB\" }", "", "plain", []string{"it cannot hold memory = 1MiB", ""}},
		"the first":                 {[]*plain{{}, weak()}, "backend \"weak\" {}\nbackend \"plain\" {}", "", "weak", []string{"", ""}},
		"not installed":             {[]*plain{{}}, "backend \"gone\" {}\nbackend \"plain\" {}", "", "plain", []string{"gone", ""}},
		"min_isolation of the file": {[]*plain{weak()}, "backend \"weak\" {}\nmin_isolation = \"namespace\"", "", "", []string{"its isolation is none, at least namespace"}},
		"min_isolation of the user": {[]*plain{{}}, "backend \"plain\" {}\nmin_isolation = \"none\"", sdk.IsolationVM, "", []string{"its isolation is namespace, and you want at least vm"}},
		"the plan cannot hold it": {[]*plain{{holds: []sdk.Hold{{Limit: sdk.LimitMemory, Value: "1MiB", Reason: "no cgroup", Fix: "delegate one"}}}},
			"backend \"plain\" {}\nlimits {\n memory = \"1MiB\"\n}", "", "", []string{"it cannot hold memory = 1MiB here: no cgroup"}},
		"the plan is silent about it": {[]*plain{{holds: []sdk.Hold{}}}, "backend \"plain\" {}\nlimits { memory = \"1MiB\" }", "", "", []string{"does not say how it would hold memory"}},
		"no such network":             {[]*plain{{}}, "backend \"plain\" {}\nnetwork { mode = \"full\" }", "", "", []string{"it has no network mode \"full\""}},
		"the network stays": {[]*plain{{desc: sdk.Description{Name: "open", Isolation: sdk.IsolationNamespace, Networks: []sdk.NetworkMode{sdk.NetworkFull}}}, {}},
			"backend \"open\" {}\nbackend \"plain\" {}", "", "plain", []string{"it has no network mode \"none\"", ""}},
		"no network to install with": {[]*plain{{}}, "backend \"plain\" {}\nlanguage = \"python\"\ndependencies = [\"x\"]", "", "", []string{"no network from which to install"}},
		"something is missing here": {[]*plain{{diags: []sdk.Diagnostic{{Severity: sdk.SeverityError, Summary: "no limactl"}}}, weak()},
			"backend \"plain\" {}\nbackend \"weak\" {}", "", "weak", []string{"no limactl", ""}},
		"a wrong attribute": {[]*plain{{}}, "backend \"plain\" { imaje = 1 }", "", "", []string{"its block has errors"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.backends...)
			w.opt.MinIsolation = tc.min
			src := "run \"r\" {\n" + tc.src + "\ncommand = [\"true\"]\n}\n"
			pl, err := w.runner().Plan(context.Background(), w.load(src)[0])
			if err != nil {
				t.Fatal(err)
			}
			if pl.Backend != tc.want || pl.OK != (tc.want != "") {
				t.Errorf("planned on %q, ok %v: %+v", pl.Backend, pl.OK, pl.Diagnostics)
			}
			if len(pl.Candidates) != len(tc.reasons) {
				t.Fatalf("candidates: %+v", pl.Candidates)
			}
			for i, want := range tc.reasons {
				if got := strings.Join(pl.Candidates[i].Reasons, "; "); want == "" != (got == "") || !strings.Contains(got, want) {
					t.Errorf("candidate %d: %q, want %q", i, got, want)
				}
			}
			if tc.want == "" && !pl.Diagnostics.HasErrors() {
				t.Error("a plan that is refused has no diagnostic")
			}
			r := w.run(src, Streams{})
			if r.Backend.Name != tc.want || r.OK != (tc.want != "") {
				t.Errorf("ran on %q: %v", r.Backend.Name, r.Error)
			}
			if tc.want == "" && (r.Status != 125 || r.Cause != sdk.CauseSetupFailed) {
				t.Errorf("%d %s", r.Status, r.Cause)
			}
		})
	}
}

func TestEntrypointThatNothingCanStart(t *testing.T) {
	for name, tc := range map[string]struct {
		file, more string
		ok         bool
	}{
		"unknown extension":   {`file "main.x" { content = "x" }`, "", false},
		"executable":          {"file \"main.x\" {\n content = \"#!/bin/sh\\necho $1\\n\"\n mode = \"0755\"\n}", "", true},
		"with a language":     {`file "main.x" { content = "echo $1" }`, `language = "shell"`, true},
		"with an interpreter": {`file "main.x" { content = "echo $1" }`, `interpreter = ["sh", "-e"]`, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := &plain{}
			w := newWorld(t, p)
			r := w.run("run \"r\" {\n backend \"plain\" {}\n entrypoint = \"main.x\"\n args = [\"a\"]\n"+tc.file+"\n"+tc.more+"\n}\n", Streams{})
			if r.OK != tc.ok || tc.ok && r.Stdout.Text != "a\n" {
				t.Errorf("%s %q %v", r.Cause, r.Stdout.Text, r.Error)
			}
			if !tc.ok && (r.Status != 125 || len(p.specs) != 0 || len(r.Error.Diagnostics) != 1 || r.Error.Diagnostics[0].Range.Start.Line != 3) {
				t.Errorf("%d %+v", r.Status, r.Error)
			}
		})
	}
}

func TestRunAll(t *testing.T) {
	p := &plain{}
	w := newWorld(t, p)
	ds := w.load(`
run "m" {
  for_each = toset(["a", "b", "c", "d", "e", "f"])
  backend "plain" {}
  command = ["sh", "-c", "echo ${each.key}; test ${each.key} != c"]
}`)
	var mu sync.Mutex
	busy, seen, idle := 0, 0, 0
	rs, err := w.runner().RunAll(context.Background(), ds, Many{Jobs: 3, Idle: func() {
		if idle++; p.destroys.Load() != 6 {
			t.Errorf("idle after %d of 6 sandboxes were destroyed", p.destroys.Load())
		}
	}, Each: func(*result.Result) {
		if busy++; busy > 1 {
			t.Error("Each is called by two at once")
		}
		seen++
		busy--
	}, Streams: func(d *runfile.Definition) (Streams, func()) {
		return Streams{Stdout: io.Discard}, func() { mu.Lock(); defer mu.Unlock() }
	}})
	if err != nil || len(rs) != 6 || seen != 6 || idle != 1 {
		t.Fatalf("%v, %d results, %d seen, %d times idle", err, len(rs), seen, idle)
	}
	for i, r := range rs {
		if r.Name != ds[i].Instance || r.OK != (ds[i].Key != "c") {
			t.Errorf("%d: %s ok %v", i, r.Name, r.OK)
		}
	}
	if p.most.Load() > 3 {
		t.Errorf("%d at once", p.most.Load())
	}
	if got := result.ExitCode(rs...); got != 1 {
		t.Errorf("exit code %d", got)
	}
}

func TestFailFast(t *testing.T) {
	w := newWorld(t, &plain{})
	ds := w.load(`
run "a" {
  backend "plain" {}
  command = ["sh", "-c", "exit 5"]
}
run "b" {
  backend "plain" {}
  command = ["sleep", "60"]
}
run "c" {
  backend "plain" {}
  command = ["true"]
}`)
	start := time.Now()
	rs, err := w.runner().RunAll(context.Background(), ds, Many{Jobs: 2, FailFast: true})
	if err != nil || time.Since(start) > 30*time.Second {
		t.Fatal(err, time.Since(start))
	}
	if rs[0].Status != 5 || rs[1] != nil && rs[1].Cause != sdk.CauseCancelled {
		t.Errorf("%+v %+v", rs[0], rs[1])
	}
	if rs[2] != nil && rs[2].OK {
		t.Error("the third was run although the first had failed")
	}
}

func TestDirectAndOverrides(t *testing.T) {
	w := newWorld(t, &plain{})
	d, err := Direct{Backend: "plain", Command: []string{"/bin/sh", "-c", "echo $A; pwd"}, Env: map[string]string{"A": "1"}, Workspace: w.dir}.Definition()
	if err != nil {
		t.Fatal(err)
	}
	if d.Instance != "sh" || d.Network != "none" || d.Workspace.Mode != "private" {
		t.Errorf("%+v", d)
	}
	o := Overrides{Backends: []string{"plain"}, Limits: runfile.Limits{Timeout: time.Minute}, Env: map[string]string{"A": "2"}, Args: []string{"x"}}
	d2 := o.Apply(d)
	if d.Limits.Timeout != 0 || d.Env["A"] != "1" || len(d.Args) != 0 {
		t.Errorf("the original was changed: %+v", d)
	}
	r, err := w.runner().Run(context.Background(), d2, Streams{})
	if err != nil {
		t.Fatal(err)
	}
	w.check(r)
	if r.Stdout.Text != "2\n"+w.dir+"\n" || r.Name != "sh" || r.File != "" || r.Limits[0].Value != "1m0s" || !r.Limits[0].Asked {
		t.Errorf("%+v", r)
	}
	for _, bad := range []Direct{{Backend: "x"}, {Command: []string{"x"}}, {Backend: "x", Command: []string{"x"}, Network: "some"},
		{Backend: "x", Command: []string{"x"}, Workspace: "rel"}, {Backend: "x", Command: []string{"x"}, Workspace: "/", Mode: "rw"}} {
		if _, err := bad.Definition(); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}

func TestTrace(t *testing.T) {
	w := newWorld(t, &plain{})
	w.opt.Trace = NewTrace()
	w.opt.Trace.Span("parse")()
	w.run(shell("true", ""), Streams{})
	var b bytes.Buffer
	if _, err := w.opt.Trace.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	var doc struct {
		TraceEvents []struct {
			Name, Ph string
			TS, Dur  float64
			TID      int
		}
	}
	if err := json.Unmarshal(b.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, e := range doc.TraceEvents {
		have[e.Name] = true
		if e.Ph == "X" && (e.TS < 0 || e.Dur < 0) {
			t.Errorf("%+v", e)
		}
	}
	for _, want := range []string{"parse", "run r", "record", "plan", "create", "exec", "outputs", "destroy", "finish"} {
		if !have[want] {
			t.Errorf("no span %q in %v", want, have)
		}
	}
}

// TestUVInstallsWhereItIsThere puts a program that behaves like uv on the PATH.
func TestUVInstallsWhereItIsThere(t *testing.T) {
	bin := t.TempDir()
	script := `#!/bin/sh
case "$1" in
--version) echo "uv 0.4.2 (of a test)"; exit ;;
esac
while [ "$1" != --target ]; do shift; done
target=$2
while [ "$1" != -- ]; do shift; done
shift
mkdir -p "$target"
echo "$*|$UV_DEFAULT_INDEX|$AWS_SECRET|$HOME" > "$target/said"
case "$*" in *nope*) echo "no such package at $UV_DEFAULT_INDEX" >&2; exit 2 ;; esac
`
	if err := os.WriteFile(filepath.Join(bin, "uv"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	p := &plain{desc: sdk.Description{Networks: []sdk.NetworkMode{sdk.NetworkNone, sdk.NetworkFull}}}
	w := newWorld(t, p)
	w.opt.Environ = []string{"PIP_INDEX_URL=http://me:topsecret@index/", "AWS_SECRET=x"}
	r := w.run(shell("true", "language = \"python\"\ndependencies = [\"a==1\", \"b\"]"), Streams{})
	if !r.OK || len(r.Dependencies) != 1 || r.Dependencies[0].Installer != "uv 0.4.2" || r.Dependencies[0].Cached {
		t.Fatalf("%+v %v", r.Dependencies, r.Error)
	}
	if len(p.specs) != 2 || p.specs[0].Network != sdk.NetworkFull || !slices.Contains([]string{"/", "ca"}, filepath.Base("/"+p.specs[0].Input)) || p.specs[0].Workspace.Source != "" || p.specs[1].Network != sdk.NetworkNone {
		t.Errorf("%+v", p.specs)
	}
	m := p.specs[1].Mounts
	if len(m) != 1 || !m[0].ReadOnly || m[0].Target != "/opt/hutch/deps/python" {
		t.Fatalf("%+v", m)
	}
	if b, err := os.ReadFile(filepath.Join(m[0].Source, "said")); string(b) != "a==1 b|http://me:topsecret@index/||/tmp\n" {
		t.Errorf("%q %v", b, err)
	}
	r = w.run(shell("true", "language = \"python\"\ndependencies = [\"nope\"]"), Streams{})
	if r.Status != 125 || r.Error == nil || r.Error.Phase != "dependencies" || !strings.Contains(r.Error.Detail, "no such package at http://(sensitive)@index/") {
		t.Errorf("%d %+v", r.Status, r.Error)
	}
	if len(p.alive) != 0 {
		t.Errorf("alive: %v", p.alive)
	}
	for _, bad := range []string{"language = \"perl\"\ndependencies = [\"x\"]"} {
		r := w.run(shell("true", bad), Streams{})
		if r.Status != 125 || len(r.Error.Diagnostics) != 1 || r.Error.Diagnostics[0].Range == nil {
			t.Errorf("%s: %d %+v", bad, r.Status, r.Error)
		}
	}
}

// A value that a flag gave is not looked for in the run file.
func TestOverriddenValuesAreAtTheirFlag(t *testing.T) {
	w := newWorld(t, &plain{})
	d := w.load("run \"r\" {\n  backend \"plain\" {}\n  command = [\"true\"]\n  limits {\n    memory = \"1GiB\"\n    pids = 5\n  }\n}\n")[0]
	o := Overrides{Limits: runfile.Limits{Memory: 1 << 20}, Backends: []string{"plain"}}.Apply(d)
	for path, want := range map[string]string{"limits.memory": "--memory", "backend[0]": "--backend", "limits.pids": ""} {
		got := o.Diagnose(path, "bad", "", "")
		if got.Path != want || (got.Range == nil) != (want != "") {
			t.Errorf("%s is at %q, %v", path, got.Path, got.Range)
		}
		if before := d.Diagnose(path, "bad", "", ""); before.Range == nil {
			t.Errorf("%s of the file has no place any more", path)
		}
	}
}
