package report

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/host/outputs"
	"github.com/hutch-run/hutch/host/result"
)

// on is a result of a run on a backend.
func on(backend string, code int, change func(*result.Result)) *result.Result {
	r := &result.Result{Name: "x on " + backend, File: "x.hcl", Backend: result.Backend{Name: backend, Version: backend}, Cause: "exited", ExitCode: &code, OK: code == 0,
		Stdout: result.Stream{Text: "hello\n", Bytes: 6, Path: "/" + backend}, Outputs: []outputs.Output{{Path: "a", Size: 1, SHA256: "aa"}},
		Changes: []result.Change{{Path: "f", Kind: "added", NewMode: "-rw-r--r--", Size: 3}}, ChangesKnown: true, ID: backend, Dir: "/" + backend}
	if change != nil {
		change(r)
	}
	return r
}

func TestCompare(t *testing.T) {
	for name, test := range map[string]struct {
		b    *result.Result
		want []string
	}{
		"the same":             {on("b", 0, nil), nil},
		"code":                 {on("b", 3, nil), []string{"exit_code: 0 3", "ok: true false"}},
		"what was printed":     {on("b", 0, func(r *result.Result) { r.Stdout.Text = "hallo\n" }), []string{`stdout.text: "hello\n" "hallo\n"`}},
		"an output's content":  {on("b", 0, func(r *result.Result) { r.Outputs[0].SHA256 = "bb" }), []string{`outputs["a"].sha256: "aa" "bb"`}},
		"an output is missing": {on("b", 0, func(r *result.Result) { r.Outputs = nil }), []string{`outputs["a"].size: 1 absent`, `outputs["a"].sha256: "aa" absent`}},
		"a change more": {on("b", 0, func(r *result.Result) {
			r.Changes = append(r.Changes, result.Change{Path: "g", Kind: "deleted"})
		}), []string{`changes["g"]: absent ["deleted","","",0]`}},
		"never started": {on("b", 0, func(r *result.Result) { r.ExitCode, r.NotStarted = nil, true }), []string{"exit_code: 0 null", "not_started: false true"}},
		"its own":       {on("b", 0, func(r *result.Result) { r.Usage.Wall, r.Evidence = 9, "other" }), nil},
	} {
		t.Run(name, func(t *testing.T) {
			cs := Compare([]*result.Result{on("a", 0, nil), test.b})
			if len(cs) != 1 || cs[0].Run != "x" || cs[0].Same != (test.want == nil) {
				t.Fatalf("%+v", cs)
			}
			var got []string
			for _, d := range cs[0].Differences {
				got = append(got, d.Field+": "+d.Values[0].Value+" "+d.Values[1].Value)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("differences (-want +got):\n%s", diff)
			}
		})
	}
	if cs := Compare([]*result.Result{on("a", 0, nil)}); len(cs) != 0 {
		t.Errorf("one result has nothing to be compared with: %+v", cs)
	}
}

func TestComparisonsAreEscaped(t *testing.T) {
	cs := Compare([]*result.Result{on("a", 0, nil), on("b", 1, func(r *result.Result) {
		r.Changes = []result.Change{{Path: "\x1b[2Jf", Kind: "added"}}
		r.Stdout.Text = "\x1b]0;x\a" + strings.Repeat("y", 200)
	})})
	var b strings.Builder
	if err := Comparisons(&b, cs, Style{}); err != nil {
		t.Fatal(err)
	}
	if text := b.String(); strings.ContainsAny(text, "\x1b\a") || !strings.Contains(text, "exit_code") || strings.Contains(text, strings.Repeat("y", 100)) {
		t.Errorf("%q", text)
	}
}
