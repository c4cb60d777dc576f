package run

import (
	"context"
	"strings"
	"testing"

	"github.com/hutch-run/hutch/sdk"
)

// TestFallBack has the first backend plan the run and fail to make the sandbox. For a reason of the machine the next one
// is tried, with everything that was prepared.
func TestFallBack(t *testing.T) {
	missing := &sdk.Error{Reason: sdk.ReasonMissing, Summary: "no user namespaces", Fix: "allow them"}
	for name, tc := range map[string]struct {
		err    error
		second error
		want   string // backend; "" for none
		says   string // in the notes, or in the failure
	}{
		"the machine lacks something": {missing, nil, "second", "no user namespaces"},
		"on both":                     {missing, &sdk.Error{Reason: sdk.ReasonMissing, Summary: "no images"}, "", `"second" is not able: no images`},
		"an attribute is wrong":       {&sdk.Error{Reason: sdk.ReasonMissing, Path: "image", Summary: "no such image"}, nil, "", "no such image"},
		"no room":                     {&sdk.Error{Reason: sdk.ReasonQuota, Summary: "no room"}, nil, "", "no room"},
	} {
		for _, keep := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", kept"}[keep], func(t *testing.T) {
				first, second := &plain{createErr: tc.err}, &plain{desc: sdk.Description{Name: "second"}, createErr: tc.second}
				w := newWorld(t, first, second)
				w.opt.Keep = keep
				src := `run "r" {
  backend "plain" {}
  backend "second" {}
  file "main.sh" { content = "echo $WORD" }
  file "key" {
    content = var.key
  }
  entrypoint = "main.sh"
  env = { WORD = "here" }
}
variable "key" {
  default   = "geheim"
  sensitive = true
}
`
				r := w.run(src, Streams{})
				said := strings.Join(r.Notes, "\n")
				if r.Error != nil {
					said = r.Error.Summary
					for _, d := range r.Error.Diagnostics {
						said += "\n" + d.Summary
					}
				}
				if r.Backend.Name != tc.want && tc.want != "" || r.OK != (tc.want != "") || !strings.Contains(said, tc.says) {
					t.Errorf("ran on %q, ok %v: %s", r.Backend.Name, r.OK, said)
				}
				if tc.want != "" && (r.Stdout.Text != "here\n" || !strings.Contains(said, "allow them")) {
					t.Errorf("stdout %q, notes %s", r.Stdout.Text, said)
				}
				if keep != (r.Sandbox != nil) && tc.want != "" {
					t.Errorf("sandbox %+v", r.Sandbox)
				}
				if report, err := w.store.Verify(context.Background(), r.ID); err != nil || !report.OK {
					t.Errorf("the record: %v %+v", err, report)
				}
				info, err := w.runner().Create(context.Background(), w.load(src)[0])
				if tc.want == "" != (err != nil) || err == nil && info.Backend != tc.want {
					t.Errorf("created %+v: %v", info, err)
				}
				if len(first.alive) > 0 {
					t.Errorf("left on the first: %v", first.alive)
				}
				if intents, err := w.store.Intents(); err != nil || len(intents) != 0 {
					t.Errorf("%v %+v", err, intents)
				}
			})
		}
	}
}
