package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/store"
)

// TestOverlaps: forks of one sandbox count as one with it.
func TestOverlaps(t *testing.T) {
	box := func(name, id, parent, source string, files ...string) Status {
		return Status{SandboxInfo: store.SandboxInfo{Name: name, ID: id, Parent: parent, Workspace: store.SandboxWorkspace{Source: source}}, Changes: &ChangeCount{files: files}}
	}
	got := Overlaps([]Status{
		box("a", "1", "", "/p", "x", "y"), box("a.1", "2", "1", "/p", "x", "z"), box("b", "3", "", "/p", "z", "x"),
		box("a.2", "4", "1", "/p", "x"), box("c", "5", "", "/q", "x"), {SandboxInfo: store.SandboxInfo{Name: "d", ID: "6"}},
	})
	want := []Overlap{{[]string{"a", "b"}, []string{"x"}}, {[]string{"a.1", "b"}, []string{"z"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestSurveyEndsInTime has more sandboxes that do not answer than are asked at once: all of them together have one
// bound.
func TestSurveyEndsInTime(t *testing.T) {
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "t.hcl")
	text := "run \"t\" {\n  backend \"fake\" { hang_during = \"inspect\" }\n  command = [\"true\"]\n}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	conf, ds := runfile.Load([]string{file}, runfile.Options{Environ: []string{}})
	if ds.HasErrors() {
		t.Fatal(ds)
	}
	const most = 2*surveyors + 1 // three waves
	for i := range most {
		if _, err := w.Create(t.Context(), conf.Runs()[0], fmt.Sprint("box", i)); err != nil {
			t.Fatal(err)
		}
	}
	w.surveyTime = 4 * time.Second
	start := time.Now()
	list, err := w.Survey(t.Context(), true)
	if err != nil || len(list) != most {
		t.Fatalf("%d sandboxes, %v", len(list), err)
	}
	if took := time.Since(start); took > 2*w.surveyTime {
		t.Errorf("it took %s", took)
	}
	for _, st := range list {
		if st.Condition != StateUnknown || !strings.Contains(st.Problem, "no answer within 4s") {
			t.Errorf("%s is %s: %q", st.Name, st.Condition, st.Problem)
		}
	}
}
