package run

import (
	"maps"
	"slices"

	"github.com/hutch-run/hutch/host/redact"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/runfile"
)

// redactor takes the secrets of one run out of what hutch writes about it.
type redactor struct{ *redact.Redactor }

func newRedactor(d *runfile.Definition) *redactor {
	return &redactor{redact.New(d.Secrets()...)}
}

// add takes in what the schema of a backend calls sensitive.
func (r *redactor) add(c *choice) {
	if c != nil && c.config != nil {
		r.Add(c.config.Secrets...)
	}
}

// result takes the secrets out of everything in x that a run file, a program or a backend can put words into. The text
// of the streams is done already.
func (r *redactor) result(x *result.Result) {
	if r.Empty() {
		return
	}
	x.Command = r.Argv(x.Command)
	x.Workdir = r.Text(x.Workdir)
	x.Evidence = r.Text(x.Evidence)
	r.Strings(x.Notes)
	r.Strings(x.NewRepositories)
	r.Strings(x.Leaks)
	for i := range x.ExpectFailures {
		f := &x.ExpectFailures[i]
		f.Want, f.Got = r.Text(f.Want), r.Text(f.Got)
	}
	for i := range x.Changes {
		x.Changes[i].Path = r.Text(x.Changes[i].Path)
	}
	for i := range x.Limits {
		x.Limits[i].HeldBy, x.Limits[i].Visible = r.Text(x.Limits[i].HeldBy), r.Text(x.Limits[i].Visible)
	}
	for i := range x.Network.Traffic {
		t := &x.Network.Traffic[i]
		t.Name, t.Rule, t.Reason = r.Text(t.Name), r.Text(t.Rule), r.Text(t.Reason)
	}
	for i := range x.Dependencies {
		x.Dependencies[i].Packages = slices.Clone(x.Dependencies[i].Packages)
		r.Strings(x.Dependencies[i].Packages)
	}
	if f := x.Error; f != nil {
		f.Summary, f.Detail, f.Fix = r.Text(f.Summary), r.Text(f.Detail), r.Text(f.Fix)
		for i := range f.Diagnostics {
			d := &f.Diagnostics[i]
			d.Summary, d.Detail, d.Fix = r.Text(d.Summary), r.Text(d.Detail), r.Text(d.Fix)
		}
	}
}

// envNames lists the names of an environment: what an event says about it.
func envNames(env map[string]string) []string { return slices.Sorted(maps.Keys(env)) }
