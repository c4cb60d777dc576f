package runfile

import (
	"encoding"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/dynblock"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/hutch-run/hutch/host/runfile/internal/functions"
	"github.com/hutch-run/hutch/host/units"
)

// block is one block while it is read: its arguments, the blocks in it, and where they belong in the definition. What
// its methods return for an argument is empty, and ok false, when there is nothing to go on with: the argument is
// absent or null, or not known in a validation without all variables, or wrong, which is then reported.
type block struct {
	*scope
	prefix string // of the paths of its values, such as limits; "" for a run
	header hcl.Range
	attrs  hcl.Attributes
	nested hcl.Blocks
	good   bool // it has only names that it may have
}

// schemaOf makes the schema of a block: the names of its arguments, each with a ! when it is required, and its blocks,
// each with what its label is called.
func schemaOf(arguments string, nested ...string) *hcl.BodySchema {
	s := &hcl.BodySchema{}
	for _, name := range strings.Fields(arguments) {
		name, required := strings.CutSuffix(name, "!")
		s.Attributes = append(s.Attributes, hcl.AttributeSchema{Name: name, Required: required})
	}
	for _, n := range nested {
		words := strings.Fields(n)
		s.Blocks = append(s.Blocks, hcl.BlockHeaderSchema{Type: words[0], LabelNames: words[1:]})
	}
	return s
}

// open takes a body apart. what names it in messages: a run, the limits block.
func (s *scope) open(body hcl.Body, schema *hcl.BodySchema, prefix, what string, header hcl.Range) *block {
	c, good := s.content(s.expand(body), schema, what, s.context, header)
	return &block{scope: s, prefix: prefix, header: header, attrs: c.Attributes, nested: c.Blocks, good: good}
}

// openNested takes a block apart that stands in another one.
func (s *scope) openNested(b *hcl.Block, schema *hcl.BodySchema, path string) *block {
	context, article := b.Type, "a"
	if len(b.Labels) > 0 {
		context += " " + quote(b.Labels[0])
	}
	if strings.Contains("aeiou", b.Type[:1]) {
		article = "an"
	}
	return s.in(context).open(b.Body, schema, path, fmt.Sprintf("%s %s block", article, b.Type), b.DefRange)
}

// openOnly takes the only nested block of a kind apart, or nil. A second one is reported.
func (b *block) openOnly(kind string, schema *hcl.BodySchema) *block {
	blocks := b.nested.OfType(kind)
	if len(blocks) == 0 {
		return nil
	}
	if len(blocks) > 1 {
		b.errorf(blocks[1].DefRange, "%s has only one %s block", b.owner, kind).fix("put both into one").
			related("the first one is here", blocks[0].DefRange)
	}
	b.origin.ranges.set(b.pathOf(kind), blocks[0].DefRange)
	return b.openNested(blocks[0], schema, b.pathOf(kind))
}

func (b *block) has(name string) bool { return b.attrs[name] != nil }

// at is the range of an argument's value, or of the block without one.
func (b *block) at(name string) hcl.Range {
	if a := b.attrs[name]; a != nil {
		return a.Expr.Range()
	}
	return b.header
}

// nameAt is the range of an argument's name.
func (b *block) nameAt(name string) hcl.Range { return b.attrs[name].NameRange }

func (b *block) pathOf(name string) string { return child(b.prefix, name) }

// elementAt is the range of one element of an argument.
func (b *block) elementAt(name string, i int) hcl.Range {
	return b.origin.rangeAt(element(b.pathOf(name), i), b.at(name))
}

// only returns which one of several arguments is given, "" for none. Two of them are reported, and not ok.
func (b *block) only(subject string, names ...string) (name string, ok bool) {
	given := slices.DeleteFunc(names, func(name string) bool { return !b.has(name) })
	switch len(given) {
	case 0:
		return "", true
	case 1:
		return given[0], true
	}
	b.errorf(b.nameAt(given[1]), "%s has both %s and %s", subject, given[0], given[1]).fix("keep one of them")
	return "", false
}

func (b *block) value(name string, t cty.Type) (v cty.Value, ok bool) {
	a := b.attrs[name]
	if a == nil {
		return v, false
	}
	b.origin.ranges.expr(b.pathOf(name), a.Expr)
	if v, ok = b.eval(a.Expr, b.ctx, b.context); !ok {
		return v, false
	}
	return b.convert(v, a.Expr, b.pathOf(name), t)
}

// isNull reports whether an argument is given as null.
func (b *block) isNull(name string) bool {
	v, diags := b.attrs[name].Expr.Value(b.ctx)
	return !diags.HasErrors() && v.IsNull()
}

// plain reads a value that is no secret, because it is printed in results and plans.
func (b *block) plain(name string, t cty.Type) (cty.Value, bool) {
	v, ok := b.value(name, t)
	if ok && v.ContainsMarked() {
		b.sensitive(name)
		return v, false
	}
	return v, ok
}

func (b *block) sensitive(name string) {
	b.errorf(b.at(name), "%s may not be sensitive", b.pathOf(name)).detail("It is printed in plans and results.").
		fix("wrap it in nonsensitive() if it is no secret")
}

// text reads a string that is no secret.
func (b *block) text(name string) (string, bool) {
	v, ok := b.plain(name, cty.String)
	if !ok {
		return "", false
	}
	return v.AsString(), true
}

// oneOf reads one of a few words.
func (b *block) oneOf(name string, words ...string) (string, bool) {
	got, ok := b.text(name)
	if ok && !slices.Contains(words, got) {
		b.errorf(b.at(name), "%s cannot be %s", name, quote(got)).detail("It is one of %s.", quotedList(words)).
			fix("%s", suggestion(got, words))
		return "", false
	}
	return got, ok
}

// secretText reads a string that may be a secret.
func (b *block) secretText(name string) (string, bool) {
	v, ok := b.value(name, cty.String)
	if !ok {
		return "", false
	}
	return b.keep(v, b.pathOf(name)), true
}

// secretTexts reads a list of strings that may be secrets. Elements that are null are refused.
func (b *block) secretTexts(name string) ([]string, bool) {
	v, ok := b.value(name, cty.List(cty.String))
	if !ok {
		return nil, false
	}
	all := v.HasMark(functions.Sensitive)
	v, _ = v.Unmark()
	list := []string{}
	for i, e := range v.AsValueSlice() {
		u, _ := e.Unmark()
		if u.IsNull() {
			b.errorf(b.elementAt(name, i), "%s is null", element(b.pathOf(name), i)).detail("Every element needs a value.")
		}
		if u.IsNull() || !u.IsKnown() {
			return nil, false
		}
		if all {
			e = e.Mark(functions.Sensitive)
		}
		list = append(list, b.keep(e, element(b.pathOf(name), i)))
	}
	return list, true
}

// texts reads a list of strings that are no secrets.
func (b *block) texts(name string) ([]string, bool) {
	list, ok := b.secretTexts(name)
	if b.anySecret(name, list) {
		b.sensitive(name)
		return nil, false
	}
	return list, ok
}

// anySecret reports whether an element of a list that was read is sensitive.
func (b *block) anySecret(name string, list []string) bool {
	for i := range list {
		if b.origin.isSecret(element(b.pathOf(name), i)) {
			return true
		}
	}
	return false
}

// oneOrMore reads a string, which single reports, or a list of strings. They may be secrets.
func (b *block) oneOrMore(name string) (list []string, single, ok bool) {
	a := b.attrs[name]
	if a == nil {
		return nil, false, false
	}
	if v, diags := a.Expr.Value(b.ctx); diags.HasErrors() || v.Type() != cty.String {
		list, ok = b.secretTexts(name)
		return list, false, ok
	}
	text, ok := b.secretText(name)
	if !ok {
		return nil, true, false
	}
	if path := b.pathOf(name); b.origin.isSecret(path) {
		b.origin.secret(element(path, 0), text)
	}
	return []string{text}, true, true
}

// number reads a number between two bounds.
func (b *block) number(name string, low, high float64, detail string) (float64, bool) {
	v, ok := b.plain(name, cty.Number)
	if !ok {
		return 0, false
	}
	n, _ := v.AsBigFloat().Float64()
	if n < low || n > high {
		b.errorf(b.at(name), "%s must be a number from %g to %g, not %s", name, low, high, v.AsBigFloat().Text('g', 15)).
			detail("%s", detail)
		return 0, false
	}
	return n, true
}

// integer reads a whole number between two bounds.
func (b *block) integer(name string, low, high int64) (int64, bool) {
	v, ok := b.plain(name, cty.Number)
	if !ok {
		return 0, false
	}
	n, accuracy := v.AsBigFloat().Int64()
	if accuracy != big.Exact || n < low || n > high {
		want := fmt.Sprintf("from %d to %d", low, high)
		if high == math.MaxInt64 {
			want = fmt.Sprintf("of at least %d", low)
		}
		b.errorf(b.at(name), "%s must be a whole number %s, not %s", name, want, v.AsBigFloat().Text('g', 15))
		return 0, false
	}
	return n, true
}

// integerInto reads a whole number into an int, which keeps its value without one.
func (b *block) integerInto(to *int, name string, low, high int64) {
	if n, ok := b.integer(name, low, high); ok {
		*to = int(n)
	}
}

func (b *block) duration(name string) (d units.Duration) {
	b.withUnit(name, `a duration such as "30s"`, &d)
	return d
}

func (b *block) size(name string) (n units.Size) {
	b.withUnit(name, `a size such as "512MiB"`, &n)
	return n
}

// withUnit reads a string with a unit. A bare number gets the message of the parser, which names the unit.
func (b *block) withUnit(name, want string, to encoding.TextUnmarshaler) {
	v, ok := b.plain(name, cty.DynamicPseudoType)
	if !ok {
		return
	}
	var text string
	switch v.Type() {
	case cty.String:
		text = v.AsString()
	case cty.Number:
		text = v.AsBigFloat().Text('f', -1)
	default:
		b.errorf(b.at(name), "%s must be %s, not %s", name, want, kind(v))
		return
	}
	if err := to.UnmarshalText([]byte(text)); err != nil {
		summary, fix, _ := strings.Cut(err.Error(), "; ")
		if v.Type() == cty.Number {
			summary = strings.Replace(summary, quote(text), text, 1)
		}
		b.errorf(b.at(name), "%s: %s", name, summary).fix("%s", fix)
	}
}

// scope reads the arguments of one run, or of one instance of it, and keeps the books: where each value was written,
// and which ones are sensitive.
type scope struct {
	*loader
	ctx     *hcl.EvalContext
	context string // the block, for a reader: run "report"
	owner   string // what kind of block it is: a run
	origin  *origin
}

// in is the scope inside a nested block.
func (s *scope) in(block string) *scope {
	inner := *s
	inner.context = block + " of " + s.context
	return &inner
}

// expand makes blocks out of dynamic ones.
func (s *scope) expand(b hcl.Body) hcl.Body {
	return dynblock.Expand(b, s.ctx, dynblock.OptCheckForEach(func(v cty.Value, e hcl.Expression,
		_ *hcl.EvalContext) hcl.Diagnostics {
		if !v.HasMark(functions.Sensitive) {
			return nil
		}
		r := e.Range()
		return hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "for_each may not be sensitive", Subject: &r,
			Detail: "The number and the names of blocks show in many places.",
			Extra:  fixExtra("wrap it in nonsensitive() if they are no secret")}}
	}))
}

func (s *scope) errorf(r hcl.Range, format string, args ...any) *finding {
	return s.failf(r, s.context, format, args...)
}

// convert converts a value to t. ok is false when it is wrong, which is reported, or null or not known.
func (s *scope) convert(v cty.Value, expr hcl.Expression, path string, t cty.Type) (cty.Value, bool) {
	converted, err := convert.Convert(v, t)
	if err != nil {
		bad := misfit(v, t)
		name := path[strings.LastIndexByte(path, '.')+1:]
		s.errorf(narrow(expr, bad.path), "%s", bad.reason(name)).fix("%s", s.conversionFix(v, t, expr))
		return v, false
	}
	if u, _ := converted.Unmark(); u.IsNull() || !u.IsKnown() {
		return converted, false // unknown only with Options.AllowMissing
	}
	return converted, true
}

// conversionFix shows the list that a single value was meant to be.
func (s *scope) conversionFix(v cty.Value, t cty.Type, expr hcl.Expression) string {
	src := string(expr.Range().SliceBytes(s.sources[expr.Range().Filename]))
	if !t.IsListType() || !v.Type().IsPrimitiveType() || len(src) > 60 || strings.ContainsAny(src, "\n<") {
		return ""
	}
	if u, marks := v.Unmark(); len(marks) == 0 && u.Type() == cty.String && u.IsKnown() && !u.IsNull() &&
		src == quote(u.AsString()) {
		if words := strings.Fields(u.AsString()); len(words) > 0 {
			return fmt.Sprintf("write a list: [%s]", strings.Join(quoteAll(words), ", "))
		}
	}
	return fmt.Sprintf("write a list: [%s]", src)
}

// keep takes the string out of a value and remembers when it is sensitive.
func (s *scope) keep(v cty.Value, path string) string {
	plain, _ := v.Unmark()
	text := plain.AsString()
	if v.HasMark(functions.Sensitive) {
		s.origin.secret(path, text)
	}
	return text
}
