package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/host/network"
	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/termsafe"
)

// ComparisonSchema identifies the JSON of a [Comparison].
const ComparisonSchema = "hutch.comparison/v1"

// Comparison says in what the results of one run on several backends differ.
type Comparison struct {
	Schema      string       `json:"schema"`
	Run         string       `json:"run"`
	File        string       `json:"file,omitempty"`
	Backends    []string     `json:"backends"`        // that it ran on, in order
	Sides       []string     `json:"sides,omitempty"` // what [Sides] compared
	Took        []string     `json:"took,omitempty"`  // of each side, for people
	Same        bool         `json:"same"`
	Differences []Difference `json:"differences"` // never null
}

// Difference is one field of the result object whose value is not the same everywhere.
type Difference struct {
	Field  string  `json:"field"` // such as exit_code, outputs["a.txt"].sha256, changes["b"]
	Values []Value `json:"values"`
}

// Value is what a field is on one backend, or of one of two sides.
type Value struct {
	Backend string `json:"backend"`
	Side    string `json:"side,omitempty"`
	Value   string `json:"value"` // as JSON, or "absent"
}

// absent is the value of a field that a result does not have.
const absent = "absent"

// Compare groups results by run, and says in what those of each group differ. What says how a program ended, what it
// printed and what it left is compared; what every run has of its own is not: ids, times, usage, where things lie, and
// the mechanisms that held the limits. A group of one is left out.
func Compare(rs []*result.Result) []Comparison {
	var out []Comparison
	var groups [][]*result.Result
	at := map[[2]string]int{}
	for _, r := range rs {
		key := [2]string{r.File, runName(r)}
		i, ok := at[key]
		if !ok {
			i = len(groups)
			at[key], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], r)
	}
	for _, g := range groups {
		if len(g) > 1 {
			out = append(out, compare(g))
		}
	}
	return out
}

// Sides compares results of two sides, such as two files: each run of one side with the run of the same name of the
// other, or the only two runs whatever their names. A run that the other side lacks differs.
func Sides(names [2]string, a, b []*result.Result) []Comparison {
	if len(a) == 1 && len(b) == 1 {
		return []Comparison{side(names, a[0], b[0])}
	}
	var out []Comparison
	left := slices.Clone(b)
	for _, r := range a {
		i := slices.IndexFunc(left, func(o *result.Result) bool { return o.Name == r.Name && o.File == r.File })
		if i < 0 {
			i = slices.IndexFunc(left, func(o *result.Result) bool { return o.Name == r.Name })
		}
		if i < 0 {
			out = append(out, side(names, r, nil))
			continue
		}
		out = append(out, side(names, r, left[i]))
		left = slices.Delete(left, i, i+1)
	}
	for _, r := range left {
		out = append(out, side(names, nil, r))
	}
	return out
}

// Among compares results whatever their names are. There are at least two, and as many names.
func Among(names []string, rs []*result.Result) Comparison {
	c := compare(rs)
	// every sandbox has its own on a backend that does not have /workspace
	if slices.ContainsFunc(rs, func(r *result.Result) bool { return r.Workspace.Path != rs[0].Workspace.Path }) {
		c.Differences = slices.DeleteFunc(c.Differences, func(d Difference) bool {
			return d.Field == "workdir" ||
				d.Field == "workspace.path"
		})
		c.Same = len(c.Differences) == 0
	}
	c.name(names, rs...)
	return c
}

// side compares one run; nil stands for a run that a side lacks.
func side(names [2]string, a, b *result.Result) Comparison {
	if a != nil && b != nil {
		return Among(names[:], []*result.Result{a, b})
	}
	one, values := a, []Value{{Value: "present"}, {Value: absent}}
	if a == nil {
		one, values = b, []Value{{Value: absent}, {Value: "present"}}
	}
	c := compare([]*result.Result{one, one})
	c.Same, c.Differences = false, []Difference{{Field: "run", Values: values}}
	c.name(names[:], a, b)
	return c
}

// name says what each side is, and how long it took; nil took nothing.
func (c *Comparison) name(names []string, rs ...*result.Result) {
	c.Sides = names
	for _, d := range c.Differences {
		for i := range d.Values {
			d.Values[i].Side = names[i]
		}
	}
	for _, r := range rs {
		t := ""
		if r != nil {
			t = took(r)
		}
		c.Took = append(c.Took, t)
	}
}

// runName is the name of the run without the backend's, which --all-backends adds.
func runName(r *result.Result) string { return strings.TrimSuffix(r.Name, " on "+r.Backend.Name) }

func compare(g []*result.Result) Comparison {
	c := Comparison{Schema: ComparisonSchema, Run: runName(g[0]), File: g[0].File, Differences: []Difference{}}
	var order []string
	all := make([]map[string]string, len(g))
	for i, r := range g {
		c.Backends = append(c.Backends, r.Backend.Name)
		all[i] = map[string]string{}
		for _, f := range fields(r) {
			if !slices.Contains(order, f.name) {
				order = append(order, f.name)
			}
			all[i][f.name] = f.value
		}
	}
	for _, name := range order {
		d := Difference{Field: name}
		for i, r := range g {
			v, ok := all[i][name]
			if !ok {
				v = absent
			}
			d.Values = append(d.Values, Value{Backend: r.Backend.Name, Value: v})
		}
		if slices.ContainsFunc(d.Values, func(v Value) bool { return v.Value != d.Values[0].Value }) {
			c.Differences = append(c.Differences, d)
		}
	}
	c.Same = len(c.Differences) == 0
	return c
}

type field struct{ name, value string }

// fields lists what is compared, in the order of the result object.
func fields(r *result.Result) []field {
	var l []field
	add := func(name string, value any) {
		var b strings.Builder
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		_ = enc.Encode(value) // texts, numbers and lists of them
		l = append(l, field{name, strings.TrimSuffix(b.String(), "\n")})
	}
	add("command", r.Command)
	add("workdir", r.Workdir)
	add("cause", r.Cause)
	add("exit_code", r.ExitCode)
	add("status", r.Status)
	add("signal", r.Signal)
	add("not_started", r.NotStarted)
	add("ok", r.OK)
	add("timed_out", r.TimedOut)
	for _, f := range r.ExpectFailures {
		add(fmt.Sprintf("expect_failures[%q]", f.What), f.Got)
	}
	for _, s := range []struct {
		name string
		s    result.Stream
	}{{"stdout", r.Stdout}, {"stderr", r.Stderr}} {
		add(s.name+".text", s.s.Text)
		add(s.name+".bytes", s.s.Bytes)
		add(s.name+".dropped", s.s.Dropped)
		add(s.name+".lost", s.s.Lost)
	}
	add("network.mode", r.Network.Mode)
	for _, t := range r.Network.Traffic {
		add(fmt.Sprintf("network.traffic[%q].allowed", network.Destination(t)), t.Allowed)
	}
	add("workspace.path", r.Workspace.Path)
	for _, o := range r.Outputs {
		add(fmt.Sprintf("outputs[%q].size", o.Path), o.Size)
		add(fmt.Sprintf("outputs[%q].sha256", o.Path), o.SHA256)
	}
	for _, s := range r.Skipped {
		add(fmt.Sprintf("outputs_skipped[%q]", s.Path), s.Reason)
	}
	add("changes_known", r.ChangesKnown)
	for _, c := range r.Changes {
		add(fmt.Sprintf("changes[%q]", c.Path), []any{c.Kind, c.OldMode, c.NewMode, c.Size})
	}
	if r.Error != nil {
		add("error.phase", r.Error.Phase)
		add("error.reason", r.Error.Reason)
	}
	return l
}

// maxValue is how much of a value a person is shown.
const maxValue = 60

// Comparisons writes what [Compare] found, for a person.
func Comparisons(w io.Writer, cs []Comparison, s Style) error {
	p := printer{style: s}
	for _, c := range cs {
		on := termsafe.Line("on " + strings.Join(c.Backends, ", "))
		if len(c.Sides) == 2 {
			on = termsafe.Line(fmt.Sprintf("in %s (%s) and %s (%s)", c.Sides[0], cmp.Or(c.Took[0], absent), c.Sides[1],
				cmp.Or(c.Took[1], absent)))
		}
		if c.Same {
			p.printf("%s: %s %s\n", p.paint(termsafe.Bold, termsafe.Line(c.Run)), p.paint(termsafe.Green, "the same"), on)
			continue
		}
		p.printf("%s: %s %s\n", p.paint(termsafe.Bold, termsafe.Line(c.Run)),
			p.paint(termsafe.Red, plural(len(c.Differences), "difference")), on)
		for _, d := range c.Differences {
			for i, v := range d.Values {
				name := ""
				if i == 0 {
					name = d.Field
				}
				value := v.Value
				if r := []rune(value); len(r) > maxValue {
					value = string(r[:maxValue]) + "…"
				}
				mark := " "
				if v.Value != d.Values[0].Value {
					mark = p.paint(termsafe.Red, "≠")
				}
				p.printf("  %-24s %s %s: %s\n", termsafe.Line(name), mark, termsafe.Line(cmp.Or(v.Side, v.Backend)),
					termsafe.Line(value))
			}
		}
	}
	_, err := w.Write(p.buf.Bytes())
	return err
}
