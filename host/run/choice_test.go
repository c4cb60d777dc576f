package run

import (
	"context"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/units"
	"github.com/hutch-run/hutch/sdk"
)

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
		"min_isolation of the file": {[]*plain{weak()}, "backend \"weak\" {}\nmin_isolation = \"namespace\"", "", "", []string{"it has isolation none, at least namespace"}},
		"min_isolation of the user": {[]*plain{{}}, "backend \"plain\" {}\nmin_isolation = \"none\"", sdk.IsolationVM, "", []string{"it has isolation namespace, and you want at least vm"}},
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
	if d.Instance != "sh" || d.Network.Mode != sdk.NetworkNone || d.Workspace.Mode != "private" {
		t.Errorf("%+v", d)
	}
	o := Overrides{Backends: []string{"plain"}, Limits: runfile.Limits{Timeout: units.Duration(time.Minute)}, Env: map[string]string{"A": "2"}, Args: []string{"x"}}
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
	for _, bad := range []Direct{{Backend: "x"},
		{Backend: "x", Command: []string{"x"}, Workspace: "rel"}, {Backend: "x", Command: []string{"x"}, Workspace: "/", Mode: "rw"}} {
		if _, err := bad.Definition(); err == nil {
			t.Errorf("%+v was taken", bad)
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
