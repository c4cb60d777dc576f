package run

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/sdk"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestPlanGolden(t *testing.T) {
	weak := &plain{desc: sdk.Description{Name: "weak", Isolation: sdk.IsolationNone, Limits: []sdk.Limit{sdk.LimitTimeout}}}
	w := newWorld(t, &plain{desc: sdk.Description{Networks: []sdk.NetworkMode{sdk.NetworkNone, sdk.NetworkFull}}}, weak)
	if err := os.WriteFile(filepath.Join(w.dir, "util.py"), []byte("x = 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	d := w.load(`
run "report" {
  backend "gone" {}
  backend "weak" {}
  backend "plain" { image = "x" }
  file "main.py" { content = "print(1)\n" }
  file "util.py" { source = "util.py" }
  entrypoint   = "main.py"
  args         = ["--rows", "3"]
  env          = { A = "\u001b[2J" }
  dependencies = ["requests==2.32.3"]
  limits {
    timeout = "5s"
    memory  = "64MiB"
  }
  outputs = ["*.json"]
}`)[0]
	p, err := w.runner().Plan(context.Background(), d)
	if err != nil {
		t.Fatal(err)
	}
	if w.store.Paths().Runs() == "" || len(p.Installs) != 1 || len(p.Installs[0].Key) != 32 {
		t.Fatalf("installs: %+v", p.Installs)
	}
	p.Installs[0].Key = "KEY" // holds what python3 of this machine is
	p.File = "run.hcl"
	var text, js bytes.Buffer
	if err := p.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	enc := json.NewEncoder(&js)
	enc.SetIndent("", "  ")
	if err := enc.Encode(p); err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]string{"plan.txt": text.String(), "plan.json": strings.ReplaceAll(js.String(), w.dir, "DIR")} {
		path := filepath.Join("testdata", name)
		if *update {
			if err := os.MkdirAll("testdata", 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Error(diff)
		}
	}
	if runs, err := os.ReadDir(w.store.Paths().Runs()); err == nil && len(runs) > 0 {
		t.Error("a plan made a run")
	}
}

func TestWarningsAreToldAndStopNothing(t *testing.T) {
	w := newWorld(t, &plain{})
	d := w.load(`
run "a" {
  backend "plain" {
    image = "x"
    old   = "y"
  }
  command = ["true"]
}`)[0]
	p, err := w.runner().Plan(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	if !p.OK || len(p.Diagnostics) != 1 || p.Diagnostics[0].Severity != diag.Warning || p.Diagnostics[0].Range.Start.Line != 5 {
		t.Errorf("plan: ok %v, %+v", p.OK, p.Diagnostics)
	}
	results, err := w.runner().RunAll(t.Context(), []*runfile.Definition{d}, Many{Jobs: 1})
	if err != nil {
		t.Fatal(err)
	}
	if r := results[0]; !r.OK || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], ":5:5: old is deprecated; Use image.") {
		t.Errorf("ok %v, notes %q", r.OK, r.Notes)
	}
}
