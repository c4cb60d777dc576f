package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hutch-run/hutch/host/runfile"
)

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
