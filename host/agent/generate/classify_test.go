package generate

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hutch-run/hutch/host/backend"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/run"
	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/store"
	"github.com/hutch-run/hutch/internal/testbackend"
	"github.com/hutch-run/hutch/sdk"
)

// update records the results of the programs in testdata/classes again, on this machine.
var update = flag.Bool("update", false, "run the programs of testdata/classes in bwrap and record their results")

func TestMain(m *testing.M) { os.Exit(testbackend.Run(m)) }

// program of testdata/classes: a run file, with what its first line wants of it.
type classCase struct {
	name, want string
	d          *runfile.Definition
	recorded   string // file with the result
}

func classCases(t *testing.T) []classCase {
	t.Helper()
	files, err := filepath.Glob("testdata/classes/*.hcl")
	if err != nil || len(files) < 40 {
		t.Fatalf("%d programs, %v", len(files), err)
	}
	var out []classCase
	for _, f := range files {
		src, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		first, _, _ := strings.Cut(string(src), "\n")
		want, ok := strings.CutPrefix(first, "# want: ")
		if !ok {
			t.Fatalf("%s does not say what is wanted", f)
		}
		conf, ds := runfile.Load([]string{f}, runfile.Options{Environ: []string{}})
		if ds.HasErrors() {
			t.Fatal(ds)
		}
		name := strings.TrimSuffix(filepath.Base(f), ".hcl")
		out = append(out, classCase{name, want, conf.Runs()[0], filepath.Join("testdata/classes", name+".json")})
	}
	return out
}

func (c classCase) check(t *testing.T, r *result.Result) {
	t.Helper()
	v := Classify(c.d, r, true)
	got := string(v.Class)
	if v.File != "" {
		got += fmt.Sprintf(" %s:%d", v.File, v.Line)
	}
	if got != c.want {
		t.Errorf("classified as %q, want %q\nsummary: %s\ncause %s, code %v\nstderr:\n%s", got, c.want, v.Summary, r.Cause, r.ExitCode, r.Stderr.Text)
	}
	if v.Summary == "" || (v.Advice == "") != (v.Class == ClassOK) || strings.Contains(v.Summary, "\n") {
		t.Errorf("summary %q, advice %q", v.Summary, v.Advice)
	}
	if said := v.Summary + v.Advice; len(r.Network.Denied()) > 0 && !(strings.Contains(said, "is not in network.allow") && strings.Contains(said, "The sandbox reaches these destinations only")) {
		t.Errorf("the denied destination is not named: summary %q, advice %q", v.Summary, v.Advice)
	}
}

// TestClassesOfRecordedResults classifies what real interpreters said in real sandboxes.
func TestClassesOfRecordedResults(t *testing.T) {
	for _, c := range classCases(t) {
		t.Run(c.name, func(t *testing.T) {
			if *update {
				t.Skip("they are being recorded")
			}
			b, err := os.ReadFile(c.recorded)
			if err != nil {
				t.Fatal(err)
			}
			var r result.Result
			if err := json.Unmarshal(b, &r); err != nil {
				t.Fatal(err)
			}
			c.check(t, &r)
		})
	}
}

// interpreters are what the programs of each kind need.
var interpreters = map[string]string{"python": "python3", "node": "node", "go": "go", "ruby": "ruby", "perl": "perl", "shell": "bash"}

// TestClassesOfRealRuns runs the same programs with the interpreters of this machine, which may be other versions.
func TestClassesOfRealRuns(t *testing.T) {
	if testing.Short() && !*update {
		t.Skip("it starts some 45 sandboxes")
	}
	w := newBwrap(t)
	for _, c := range classCases(t) {
		t.Run(c.name, func(t *testing.T) {
			kind, _, _ := strings.Cut(c.name, "_")
			if kind == "go" && !*update && c.name != "go_missing" {
				t.Skip("it compiles Go's library first, which takes a minute")
			}
			need(t, interpreters[kind])
			r, err := w.Run(t.Context(), c.d, run.Streams{})
			if err != nil {
				t.Fatal(err)
			}
			if *update {
				keep(t, c.recorded, r)
			}
			if v := Classify(c.d, r, true); c.want == string(ClassMemory) && r.Cause == sdk.CauseExited && v.File != "" {
				c.want += fmt.Sprintf(" %s:%d", v.File, v.Line) // without a cgroup to write the interpreter itself ran out, and knows where
			}
			c.check(t, r)
		})
	}
}

// keep writes the part of a result that a verdict comes from and that does not differ from one run to the next.
func keep(t *testing.T, path string, r *result.Result) {
	t.Helper()
	part := result.Result{Schema: r.Schema, Name: r.Name, Command: r.Command, Cause: r.Cause, Evidence: r.Evidence, ExitCode: r.ExitCode, Status: r.Status, Signal: r.Signal,
		NotStarted: r.NotStarted, OK: r.OK, TimedOut: r.TimedOut, Expected: r.Expected, ExpectFailures: r.ExpectFailures, Stdout: r.Stdout, Stderr: r.Stderr,
		Limits: r.Limits, Network: r.Network, Outputs: r.Outputs, Changes: r.Changes, ChangesKnown: r.ChangesKnown, Error: r.Error}
	b, err := json.MarshalIndent(part, "", "  ")
	if err == nil {
		err = os.WriteFile(path, append(b, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// need skips a test on a machine without a program, unless HUTCH_TEST_REQUIRE lists it. A sandbox looks in the system's
// directories only.
func need(t *testing.T, program string) {
	t.Helper()
	cmd := exec.Command("/usr/bin/env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/go/bin", "HOME=/tmp", "sh", "-c", "command -v "+program)
	if out, err := cmd.CombinedOutput(); err != nil {
		if slices.Contains(strings.Split(os.Getenv("HUTCH_TEST_REQUIRE"), ","), program) {
			t.Fatalf("%s is required (HUTCH_TEST_REQUIRE): %v %s", program, err, out)
		}
		t.Skipf("there is no %s", program)
	}
}

// newBwrap runs in real sandboxes, with records in a directory of the test.
func newBwrap(t *testing.T) *run.Runner {
	t.Helper()
	need(t, "bwrap")
	bin := testbackend.Dir(t, "bwrap")
	s := newStore(t)
	dir, err := store.NewRuntimeDir()
	if err != nil {
		t.Fatal(err)
	}
	p := backend.NewPool(backend.Options{Dir: dir.Path(), CacheDir: s.Paths().Backends(), Paths: []string{bin}})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			t.Error(err)
		}
		if err := dir.Close(); err != nil {
			t.Error(err)
		}
	})
	return run.New(run.Options{Store: s, Backends: p})
}

func newStore(t *testing.T) *store.Store {
	t.Helper()
	s, err := store.Open(store.Options{Home: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}
