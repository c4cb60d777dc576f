package run

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
	want := []string{"run.begin", "plan", "run.info", "code", "sandbox.create", "sandbox.ready", "exec.start", "exec.end", "outputs", "sandbox.destroy", "run.end"}
	if diff := cmp.Diff(want, types); diff != "" {
		t.Error(diff)
	}
	if r.Events.Head != events[len(events)-1].Hash || r.Events.Head == "" {
		t.Errorf("the result names head %q", r.Events.Head)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

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

// TestLostOutput: a program that ended with 0 did so, whatever of its output came; but nothing that is expected of a
// stream is true of a part of it.
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

func TestTrace(t *testing.T) {
	w := newWorld(t, &plain{})
	w.opt.Trace = NewTrace(time.Now())
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
