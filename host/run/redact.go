package run

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/hutch-run/hutch/host/result"
	"github.com/hutch-run/hutch/host/runfile"
)

// redacted is what stands where a secret stood.
const redacted = "(sensitive)"

// minSecret is the length below which a secret is not looked for in text: without them hardly a text would stay
// readable.
const minSecret = 4

// redactor takes the secrets of one run out of what hutch writes about it.
type redactor struct {
	secrets []string // longest first
	longest int
	short   []string // looked for only where they may stand alone
}

func newRedactor(d *runfile.Definition) *redactor {
	r := &redactor{}
	r.addStrings(d.Secrets())
	return r
}

// add takes in what the schema of a backend calls sensitive.
func (r *redactor) add(c *choice) {
	if c != nil && c.config != nil {
		r.addStrings(c.config.Secrets)
	}
}

func (r *redactor) addStrings(l []string) {
	for _, s := range l {
		if len(s) < minSecret {
			r.short = append(r.short, s)
			continue
		}
		// Messages quote what they are about, which changes some characters.
		quoted, ascii := strconv.Quote(s), strconv.QuoteToASCII(s)
		for _, s := range []string{s, quoted[1 : len(quoted)-1], ascii[1 : len(ascii)-1]} {
			if !slices.Contains(r.secrets, s) {
				r.secrets = append(r.secrets, s)
				r.longest = max(r.longest, len(s))
			}
		}
	}
	sort.SliceStable(r.secrets, func(i, k int) bool { return len(r.secrets[i]) > len(r.secrets[k]) })
}

// string takes the secrets out of s.
func (r *redactor) string(s string) string {
	for _, x := range r.secrets {
		s = strings.ReplaceAll(s, x, redacted)
	}
	return s
}

// text is string for the end of a stream, which may begin in the middle of a secret.
func (r *redactor) text(s string, cut bool) string {
	if cut {
		best := 0
		for _, x := range r.secrets {
			for n := len(x) - 1; n >= minSecret && n > best; n-- {
				if strings.HasPrefix(s, x[len(x)-n:]) {
					best = n
				}
			}
		}
		if best > 0 {
			s = redacted + s[best:]
		}
	}
	return r.string(s)
}

// argv returns the arguments of a command without secrets: here one is recognised by itself too, however short.
func (r *redactor) argv(l []string) []string {
	l = slices.Clone(l)
	for i, s := range l {
		if slices.Contains(r.short, s) {
			l[i] = redacted
		}
	}
	r.strings(l)
	return l
}

func (r *redactor) strings(l []string) {
	for i := range l {
		l[i] = r.string(l[i])
	}
}

// value returns v as what it is in JSON, with the secrets taken out of its strings.
func (r *redactor) value(v any) any {
	if len(r.secrets) == 0 || v == nil {
		return v
	}
	b, err := json.Marshal(v)
	if err != nil {
		return v // the store will say so
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var x any
	if err := dec.Decode(&x); err != nil {
		return v
	}
	return r.walk(x)
}

func (r *redactor) walk(v any) any {
	switch v := v.(type) {
	case string:
		return r.string(v)
	case []any:
		for i := range v {
			v[i] = r.walk(v[i])
		}
	case map[string]any:
		for _, k := range slices.Collect(maps.Keys(v)) {
			v[k] = r.walk(v[k])
		}
	}
	return v
}

// result takes the secrets out of everything in x that a run file, a program or a backend can put words into. The text
// of the streams is done already.
func (r *redactor) result(x *result.Result) {
	if len(r.secrets)+len(r.short) == 0 {
		return
	}
	x.Command = r.argv(x.Command)
	x.Workdir = r.string(x.Workdir)
	x.Evidence = r.string(x.Evidence)
	r.strings(x.Notes)
	r.strings(x.Leaks)
	for i := range x.ExpectFailures {
		f := &x.ExpectFailures[i]
		f.Want, f.Got = r.string(f.Want), r.string(f.Got)
	}
	for i := range x.Changes {
		x.Changes[i].Path = r.string(x.Changes[i].Path)
	}
	for i := range x.Limits {
		x.Limits[i].HeldBy = r.string(x.Limits[i].HeldBy)
	}
	for i := range x.Dependencies {
		x.Dependencies[i].Packages = slices.Clone(x.Dependencies[i].Packages)
		r.strings(x.Dependencies[i].Packages)
	}
	if f := x.Error; f != nil {
		f.Summary, f.Detail, f.Fix = r.string(f.Summary), r.string(f.Detail), r.string(f.Fix)
		for i := range f.Diagnostics {
			d := &f.Diagnostics[i]
			d.Summary, d.Detail, d.Fix = r.string(d.Summary), r.string(d.Detail), r.string(d.Fix)
		}
	}
}

// envNames lists the names of an environment: what an event says about it.
func envNames(env map[string]string) []string { return slices.Sorted(maps.Keys(env)) }
