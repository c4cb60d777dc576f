package runfile

import (
	"encoding/json"
	"fmt"
	"sync"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/diag/hcldiag"
	"github.com/hutch-run/hutch/host/runfile/internal/bound"
	"github.com/hutch-run/hutch/host/runfile/internal/functions"
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
		d.Backends = append(d.Backends, &Backend{Name: name, Range: hcldiag.Range(nested.DefRange),
			body:   b.expand(nested.Body),
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
		o := diag.Diagnostic{Severity: diag.Error, Summary: lowerFirst(d.Summary), Detail: d.Detail, Fix: d.Fix,
			Context: fmt.Sprintf("backend %q", b.Name)}
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

// decoder turns the body of a backend block into a value by the backend's schema, and remembers where each part of it
// was written.
type decoder struct {
	*scope
	backend string
	ranges  ranges
	hidden  map[string]bool // keys of paths that the schema calls sensitive
	depth   int
}

// flagScope is the scope of a backend block that is in no file.
func flagScope(name string) *scope {
	l := &loader{budget: bound.NewBudget(), sources: sources{}, options: &Options{}, evaluating: &sync.Mutex{},
		ctx: &hcl.EvalContext{}}
	return &scope{loader: l, ctx: l.ctx, context: fmt.Sprintf("backend %q", name), origin: &origin{ranges: ranges{}}}
}

// bug reports what is wrong with the schema itself, which the user of a backend cannot help.
func (d *decoder) bug(format string, args ...any) {
	d.diags = append(d.diags, diag.Errorf("the backend %q has a fault in its schema: %s", d.backend,
		fmt.Sprintf(format, args...)).
		WithFix("tell the author of the backend; hutch backend test finds this too"))
}

// block decodes one body. what names it for a reader; path is where it stands below the backend block.
func (d *decoder) block(body hcl.Body, schema *sdk.Schema, path string, header hcl.Range, what string) (cty.Value,
	bool) {
	if schema == nil {
		schema = &sdk.Schema{}
	}
	if d.depth++; d.depth > 16 {
		d.bug("its blocks are nested more than 16 deep")
		return cty.NilVal, false
	}
	defer func() { d.depth-- }()
	hs := &hcl.BodySchema{}
	for _, a := range schema.Attributes {
		hs.Attributes = append(hs.Attributes, hcl.AttributeSchema{Name: a.Name})
	}
	for _, b := range schema.Blocks {
		h := hcl.BlockHeaderSchema{Type: b.Name}
		if b.Nesting == sdk.NestingMap {
			h.LabelNames = []string{"name"}
		}
		hs.Blocks = append(hs.Blocks, h)
	}
	content, ok := d.content(body, hs, what, d.context, header)
	values := map[string]cty.Value{}
	for i := range schema.Attributes {
		v, good := d.attribute(&schema.Attributes[i], content.Attributes, path, header, what)
		ok, values[schema.Attributes[i].Name] = ok && good, v
	}
	for i := range schema.Blocks {
		v, good := d.nested(&schema.Blocks[i], content.Blocks.OfType(schema.Blocks[i].Name), path, header, what)
		ok, values[schema.Blocks[i].Name] = ok && good, v
	}
	if !ok {
		return cty.NilVal, false
	}
	return cty.ObjectVal(values), true
}

func (d *decoder) attribute(a *sdk.Attribute, attrs hcl.Attributes, path string, header hcl.Range,
	what string) (cty.Value, bool) {
	full := child(path, a.Name)
	typ, defaults, err := schemaType(a.Type)
	if err != nil {
		d.bug("invalid type %s of %s: %v", quote(a.Type), full, err)
		return cty.NilVal, false
	}
	got := attrs[a.Name]
	if got == nil {
		if a.Required {
			d.errorf(header, "%s needs the argument %q", what, a.Name).detail("%s", sentence(a.Doc)).
				fix("%s", "add "+a.Name+" = "+example(typ))
			return cty.NilVal, false
		}
		return d.standard(a, full, typ)
	}
	d.ranges.expr(full, got.Expr)
	if a.Sensitive {
		if parts, err := parsePath(full); err == nil {
			d.hidden[pathKey(parts)] = true
		}
	}
	if a.Deprecated != "" {
		d.errorf(got.NameRange, "%s is deprecated", a.Name).detail("%s", sentence(a.Deprecated)).warning()
	}
	before := len(d.diags)
	v, ok := d.eval(got.Expr, d.ctx, d.context)
	if ok && v.IsNull() {
		if a.Required {
			d.errorf(got.Expr.Range(), "%s is null, and %s needs it", a.Name, what).detail("%s", sentence(a.Doc))
			return cty.NilVal, false
		}
		return d.standard(a, full, typ)
	}
	if ok {
		if defaults != nil {
			v = defaults.Apply(v)
		}
		v, ok = d.convert(v, got.Expr, full, typ)
		ok = ok || len(d.diags) == before // not known, or null: neither is an error here
	}
	if a.Sensitive {
		for i := before; i < len(d.diags); i++ {
			d.diags[i].Snippet, d.diags[i].Values = nil, nil
		}
		v = v.Mark(functions.Sensitive)
	}
	return v, ok
}

// standard is the value of an argument that is not given.
func (d *decoder) standard(a *sdk.Attribute, full string, typ cty.Type) (cty.Value, bool) {
	if len(a.Default) == 0 {
		return cty.NullVal(typ), true
	}
	if bound.TooDeep(a.Default) >= 0 {
		d.bug("the default of %s is nested more than %d deep", full, bound.MaxNesting)
		return cty.NilVal, false
	}
	t := typ
	if t.HasDynamicTypes() {
		implied, err := ctyjson.ImpliedType(a.Default)
		if err != nil {
			d.bug("the default of %s is not JSON: %v", full, err)
			return cty.NilVal, false
		}
		t = implied
	}
	v, err := ctyjson.Unmarshal(a.Default, t.WithoutOptionalAttributesDeep())
	if err != nil {
		d.bug("the default of %s does not fit its type %s: %v", full, a.Type, err)
		return cty.NilVal, false
	}
	if a.Sensitive {
		v = v.Mark(functions.Sensitive)
	}
	return v, true
}

func (d *decoder) nested(b *sdk.Block, blocks hcl.Blocks, path string, header hcl.Range, what string) (cty.Value,
	bool) {
	full := child(path, b.Name)
	inWhat := fmt.Sprintf("the %s block", b.Name)
	if len(blocks) > 0 {
		d.ranges.set(full, blocks[0].DefRange)
	}
	if len(blocks) < b.Min || b.Nesting == sdk.NestingSingle && len(blocks) == 0 && b.Min > 0 {
		count := "a block"
		if b.Min > 1 {
			count = fmt.Sprintf("at least %d blocks", b.Min)
		}
		d.errorf(header, "%s needs %s %q", what, count, b.Name).detail("%s", sentence(b.Doc))
		return cty.NilVal, false
	}
	most := b.Max
	if b.Nesting == sdk.NestingSingle || b.Nesting == "" {
		most = 1
	}
	if most > 0 && len(blocks) > most {
		count := "only one block"
		if most > 1 {
			count = fmt.Sprintf("at most %d blocks", most)
		}
		d.errorf(blocks[most].DefRange, "%s takes %s %q", what, count, b.Name).detail("%s", sentence(b.Doc))
		return cty.NilVal, false
	}
	switch b.Nesting {
	case sdk.NestingSingle, "":
		if len(blocks) == 0 {
			return cty.NullVal(cty.DynamicPseudoType), true
		}
		return d.block(blocks[0].Body, &b.Schema, full, blocks[0].DefRange, inWhat)
	case sdk.NestingList:
		list, ok := []cty.Value{}, true
		for i, block := range blocks {
			at := element(full, i)
			d.ranges.set(at, block.DefRange)
			v, good := d.block(block.Body, &b.Schema, at, block.DefRange, inWhat)
			list, ok = append(list, v), ok && good
		}
		if !ok {
			return cty.NilVal, false
		}
		return cty.TupleVal(list), true
	case sdk.NestingMap:
		m, ok := map[string]cty.Value{}, true
		for _, block := range blocks {
			label := block.Labels[0]
			at := member(full, label)
			if _, twice := m[label]; twice {
				d.errorf(block.LabelRanges[0], "there are two %s blocks %s", b.Name, quote(label)).fix("rename one")
				ok = false
				continue
			}
			d.ranges.set(at, block.DefRange)
			v, good := d.block(block.Body, &b.Schema, at, block.DefRange, fmt.Sprintf("the %s block %s", b.Name, quote(label)))
			m[label], ok = v, ok && good
		}
		if !ok {
			return cty.NilVal, false
		}
		return cty.ObjectVal(m), true
	}
	d.bug("the block %s has the unknown nesting %q", full, b.Nesting)
	return cty.NilVal, false
}

// schemaType parses a type constraint.
func schemaType(text string) (cty.Type, *typeexpr.Defaults, error) {
	if len(text) > 4096 {
		return cty.NilType, nil, fmt.Errorf("it is %d bytes long", len(text))
	}
	switch text { // most of them
	case "string":
		return cty.String, nil, nil
	case "number":
		return cty.Number, nil, nil
	case "bool":
		return cty.Bool, nil, nil
	}
	// the parser reports what is wrong with them
	tokens, _ := hclsyntax.LexExpression([]byte(text), "type", hcl.InitialPos)
	if _, reason := bound.CheckTokens(tokens); reason != "" {
		return cty.NilType, nil, fmt.Errorf("%s", reason)
	}
	expr, diags := hclsyntax.ParseExpression([]byte(text), "type", hcl.InitialPos)
	if diags.HasErrors() {
		return cty.NilType, nil, fmt.Errorf("%s", diags[0].Detail)
	}
	t, defaults, diags := typeexpr.TypeConstraintWithDefaults(expr)
	if diags.HasErrors() {
		return cty.NilType, nil, fmt.Errorf("%s", diags[0].Detail)
	}
	return t, defaults, nil
}

// example is how a value of a type may look.
func example(t cty.Type) string {
	switch {
	case t == cty.String:
		return `"…"`
	case t == cty.Number:
		return "1"
	case t == cty.Bool:
		return "true"
	case t.IsListType(), t.IsSetType(), t.IsTupleType():
		return "[ … ]"
	case t.IsMapType(), t.IsObjectType():
		return "{ … }"
	}
	return "…"
}

// toJSON writes a value that is wholly known.
func toJSON(v cty.Value, redact bool) json.RawMessage {
	data, err := unescaped(plainGo(v, redact))
	if err != nil {
		return json.RawMessage("null") // maps, slices and strings always encode
	}
	return data
}

// plainGo makes of a value what encoding/json knows.
func plainGo(v cty.Value, redact bool) any {
	if redact && v.HasMark(functions.Sensitive) {
		if u, _ := v.Unmark(); u.IsNull() {
			return nil
		}
		return Redacted
	}
	v, _ = v.Unmark()
	if v.IsNull() || !v.IsKnown() {
		return nil
	}
	switch t := v.Type(); {
	case t == cty.String:
		return v.AsString()
	case t == cty.Number:
		return json.Number(v.AsBigFloat().Text('f', -1))
	case t == cty.Bool:
		return v.True()
	case t.IsListType(), t.IsSetType(), t.IsTupleType():
		list := []any{}
		for it := v.ElementIterator(); it.Next(); {
			_, e := it.Element()
			list = append(list, plainGo(e, redact))
		}
		return list
	case t.IsMapType(), t.IsObjectType():
		m := map[string]any{}
		for it := v.ElementIterator(); it.Next(); {
			k, e := it.Element()
			m[k.AsString()] = plainGo(e, redact)
		}
		return m
	}
	return nil
}
