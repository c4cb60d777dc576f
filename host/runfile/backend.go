package runfile

import (
	"encoding/json"
	"fmt"
	"sync"

	"github.com/hashicorp/hcl/v2"

	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/diag/hcldiag"
	"github.com/hutch-run/hutch/sdk"
)

// Backend is one backend block of a run: a name, and a body that only the backend's schema can explain. Safe for
// concurrent use.
type Backend struct {
	Name  string
	Range diag.Range // of the block's header; zero for one that comes from flags

	body   hcl.Body // nil for one that comes from flags
	header hcl.Range
	scope  *scope

	recorded json.RawMessage // what an earlier run was given, in the stead of a body

	mu     sync.Mutex
	ranges ranges // of the values inside, once decoded
	hidden map[string]bool
}

// NewBackend makes a backend block with an empty body, for runs that come from flags.
func NewBackend(name string) *Backend { return &Backend{Name: name} }

// RecordedBackend makes a backend block of what an earlier run was given, which nothing sensitive is missing of. The
// backend itself says whether it still takes it.
func RecordedBackend(name string, config json.RawMessage) *Backend {
	return &Backend{Name: name, recorded: config}
}

// BackendConfig is the body of a backend block after it was checked against the schema.
type BackendConfig struct {
	Value    json.RawMessage // in clear, defaults filled in: what the backend gets
	Redacted json.RawMessage // without what is sensitive by the schema or by its origin: what is stored and printed
	Secrets  []string        // the strings that Redacted leaves out
}

// backends reads the backend blocks, as far as that is possible without their schemas.
func (b *block) backends(d *Definition) {
	const most = 16
	for i, nested := range b.nested.OfType("backend") {
		name := nested.Labels[0]
		b.origin.ranges.set(fmt.Sprintf("backend[%d]", i), nested.DefRange)
		if !validBackendName(name) {
			b.errorf(nested.LabelRanges[0], "%s cannot be the name of a backend", quote(name)).detail(backendNameRule)
			continue
		}
		if i == most {
			b.errorf(nested.DefRange, "the run has more than %d backends", most)
			return
		}
		d.Backends = append(d.Backends, &Backend{Name: name, Range: hcldiag.Range(nested.DefRange), body: b.expand(nested.Body),
			header: nested.DefRange, scope: b.in(fmt.Sprintf("backend %q", name))})
	}
}

// Decode checks the body against the schema that the backend declares. The result is nil after an error, and also when
// the file was loaded with Options.AllowMissing and a value is not known.
func (b *Backend) Decode(schema *sdk.Schema) (*BackendConfig, diag.Diagnostics) {
	if b.recorded != nil {
		return &BackendConfig{Value: b.recorded, Redacted: b.recorded}, nil
	}
	body, s := b.body, b.scope
	if body == nil {
		body, s = hcl.EmptyBody(), flagScope(b.Name)
	}
	// Evaluation shares the file's budget and syntax tree, which are not safe to use from two runs at once.
	s.evaluating.Lock()
	defer s.evaluating.Unlock()
	l := *s.loader
	l.diags = nil
	inner := *s
	inner.loader = &l
	dec := &decoder{scope: &inner, backend: b.Name, ranges: ranges{}, hidden: map[string]bool{}}
	dec.ranges[""] = b.header
	value, ok := dec.block(body, schema, "", b.header, fmt.Sprintf("backend %q", b.Name))
	if _, reason := l.budget.Spent(); reason != "" {
		l.spent()
		ok = false
	}
	b.mu.Lock()
	b.ranges, b.hidden = dec.ranges, dec.hidden
	b.mu.Unlock()
	diags := inOrder(l.diags)
	if !ok || diags.HasErrors() || !value.IsWhollyKnown() {
		return nil, diags
	}
	config := &BackendConfig{Value: toJSON(value, false), Redacted: toJSON(value, true)}
	secrets := &Definition{origin: &origin{}}
	secrets.origin.markedStrings(value)
	config.Secrets = secrets.Secrets()
	return config, diags
}

// Diagnose puts what the backend says about its configuration at the exact expression. What the backend speaks of and
// the file does not have, such as an argument that is absent, is reported at the nearest thing that holds it, with the
// path in front.
func (b *Backend) Diagnose(ds []sdk.Diagnostic) diag.Diagnostics {
	b.mu.Lock()
	known, hidden := b.ranges, b.hidden
	b.mu.Unlock()
	var out diag.Diagnostics
	for _, d := range ds {
		o := diag.Diagnostic{Severity: diag.Error, Summary: lowerFirst(d.Summary), Detail: d.Detail, Fix: d.Fix, Context: fmt.Sprintf("backend %q", b.Name)}
		if d.Severity == sdk.SeverityWarning {
			o.Severity = diag.Warning
		}
		parts, err := parsePath(d.Path)
		r, exact := b.header, false
		if err == nil {
			if found, isExact, ok := known.find(parts); ok {
				r, exact = found, isExact
			}
		}
		if !exact && d.Path != "" {
			o.Path = d.Path
			o.Summary = fmt.Sprintf("%s: %s", d.Path, o.Summary)
		}
		if b.scope != nil {
			o.Context = b.scope.context
			o = b.scope.sources.at(o, r)
		}
		for n := range parts {
			if hidden[pathKey(parts[:n+1])] {
				o.Snippet = nil
			}
		}
		out = append(out, o)
	}
	return out
}
