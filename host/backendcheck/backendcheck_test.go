package backendcheck

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hutch-run/hutch/internal/testbackend"
	"github.com/hutch-run/hutch/sdk/backendtest"
)

// fake is the backend that is for tests; it is started as a program and never imported.
func fake(t *testing.T) string {
	t.Helper()
	return filepath.Join(testbackend.Dir(t, "fake"), "hutch-backend-fake")
}

func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// The junk that a plugin may write does no harm to the suite, and death by every
// signal is survived: the whole table holds for the compiled fake.
func TestTheFakePasses(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the whole suite")
	}
	var out bytes.Buffer
	report, err := Run(t.Context(), Options{Path: fake(t), Config: write(t, "block.hcl", "stderr_junk = true\n"), Out: &out})
	if err != nil {
		t.Fatal(err)
	}
	if !report.OK() || report.Passed < 200 {
		t.Errorf("%d passed, %d failed:\n%s", report.Passed, report.Failed, out.String())
	}
	if !strings.HasPrefix(out.String(), "TAP version 14\n") {
		t.Errorf("the report begins with %.80q", out.String())
	}
}

func TestFormatsAndFailures(t *testing.T) {
	bin, config := fake(t), write(t, "block.hcl", "lies = [\"exit_code\"]\n")
	only := regexp.MustCompile(`^exec/exit-`)
	run := func(f backendtest.Format) (*backendtest.Report, string) {
		var out, progress bytes.Buffer
		r, err := Run(t.Context(), Options{Path: bin, Config: config, Only: only, Format: f, Out: &out, Progress: &progress})
		if err != nil {
			t.Fatal(err)
		}
		if r.OK() || r.Failed != 1 || r.Passed != 5 {
			t.Errorf("%s: %+v", f, r)
		}
		if !strings.Contains(progress.String(), "FAIL exec/exit-7: ") || !strings.Contains(progress.String(), "ok   exec/exit-0 ") {
			t.Errorf("progress: %s", progress.String())
		}
		return r, out.String()
	}
	if _, text := run(backendtest.Text); !strings.Contains(text, "    not ok 3 - exec/exit-7 # ") || !strings.Contains(text, "\nnot ok 1 - exec\n") {
		t.Errorf("text:\n%s", text)
	}
	want, text := run(backendtest.JSON)
	var got backendtest.Report
	if err := json.Unmarshal([]byte(text), &got); err != nil || got.Failed != want.Failed || got.Schema != "hutch.conformance/v1" || len(got.Results) != 6 {
		t.Errorf("json: %v\n%s", err, text)
	}
	_, text = run(backendtest.JUnit)
	var suites struct {
		Failures int `xml:"failures,attr"`
		Cases    []struct {
			Failure *struct{} `xml:"failure"`
		} `xml:"testsuite>testcase"`
	}
	if err := xml.Unmarshal([]byte(text), &suites); err != nil || suites.Failures != 1 || len(suites.Cases) != 6 || suites.Cases[2].Failure == nil {
		t.Errorf("junit: %v\n%s", err, text)
	}
}

func TestMistakes(t *testing.T) {
	bin := fake(t)
	for _, tt := range []struct {
		name string
		o    Options
		want string
	}{
		{"no backend", Options{Path: "/bin/true"}, "no backend that could be tested"},
		{"no program", Options{Path: "/no/such"}, "there is no program /no/such"},
		{"no executable", Options{Path: "/etc/passwd"}, "/etc/passwd: it cannot be executed: permission denied"},
		{"unknown attribute", Options{Path: bin, Config: write(t, "b.hcl", "marker = \"x\"\nmakrer = 1\n")}, "makrer"},
		{"wrong type", Options{Path: bin, Config: write(t, "b.hcl", "lies = 3\n")}, "lies"},
		{"syntax", Options{Path: bin, Config: write(t, "b.hcl", "lies = [\n")}, "b.hcl"},
		{"no JSON", Options{Path: bin, Config: write(t, "b.json", "{")}, "no JSON"},
		{"other file", Options{Path: bin, Config: write(t, "b.yaml", "a: b")}, "neither .hcl nor .json"},
		{"nothing matches", Options{Path: bin, Only: regexp.MustCompile("^nothing$")}, "no check has an id"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.o.Out = &bytes.Buffer{}
			_, err := Run(t.Context(), tt.o)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
