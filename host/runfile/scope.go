package runfile

import (
	"fmt"
	"math"
	"math/big"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/dynblock"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/hutch-run/hutch/host/runfile/internal/functions"
	"github.com/hutch-run/hutch/host/units"
)

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

func (s *scope) body(b hcl.Body, schema *hcl.BodySchema, what string, header hcl.Range) (*hcl.BodyContent, bool) {
	return s.content(b, schema, what, s.context, header)
}

// expand makes blocks out of dynamic ones.
func (s *scope) expand(b hcl.Body) hcl.Body {
	return dynblock.Expand(b, s.ctx, dynblock.OptCheckForEach(func(v cty.Value, e hcl.Expression, _ *hcl.EvalContext) hcl.Diagnostics {
		if !v.HasMark(functions.Sensitive) {
			return nil
		}
		r := e.Range()
		return hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "for_each may not be sensitive", Subject: &r,
			Detail: "The number and the names of blocks show in many places.", Extra: fixExtra("wrap it in nonsensitive() if they are no secret")}}
	}))
}

func (s *scope) error(r hcl.Range, summary, detail, fix string) {
	s.fail(r, s.context, summary, detail, fix)
}

// value evaluates an argument and converts it to t. ok is false when there is nothing to go on with: the argument is
// absent or null, or not known in a validation without all variables, or wrong, which is then reported.
func (s *scope) value(a *hcl.Attribute, path string, t cty.Type) (v cty.Value, ok bool) {
	if a == nil {
		return v, false
	}
	s.origin.ranges.expr(path, a.Expr)
	v, ok = s.eval(a.Expr, s.ctx, s.context)
	if !ok {
		return v, false
	}
	return s.convert(v, a.Expr, path, t)
}

func (s *scope) convert(v cty.Value, expr hcl.Expression, path string, t cty.Type) (cty.Value, bool) {
	converted, err := convert.Convert(v, t)
	if err != nil {
		bad := misfit(v, t)
		name := path[strings.LastIndexByte(path, '.')+1:]
		s.error(narrow(expr, bad.path), bad.reason(name), "", s.conversionFix(v, t, expr))
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
	if u, marks := v.Unmark(); len(marks) == 0 && u.Type() == cty.String && u.IsKnown() && !u.IsNull() && src == quote(u.AsString()) {
		if words := strings.Fields(u.AsString()); len(words) > 0 {
			return fmt.Sprintf("write a list: [%s]", strings.Join(quoteAll(words), ", "))
		}
	}
	return fmt.Sprintf("write a list: [%s]", src)
}

func mustUnmark(v cty.Value) cty.Value { v, _ = v.UnmarkDeep(); return v }

// plain refuses a sensitive value for something that is printed in results and plans.
func (s *scope) plain(v cty.Value, expr hcl.Expression, path string) (cty.Value, bool) {
	if v.ContainsMarked() {
		s.error(expr.Range(), fmt.Sprintf("%s may not be sensitive", path), "It is printed in plans and results.", "wrap it in nonsensitive() if it is no secret")
		return v, false
	}
	return v, true
}

// text reads a string that is no secret.
func (s *scope) text(c *hcl.BodyContent, name, path string) (string, bool) {
	a := c.Attributes[name]
	v, ok := s.value(a, path, cty.String)
	if ok {
		v, ok = s.plain(v, a.Expr, path)
	}
	if !ok {
		return "", false
	}
	return v.AsString(), true
}

// oneOf reads one of a few words.
func (s *scope) oneOf(c *hcl.BodyContent, name, path string, words ...string) (string, bool) {
	got, ok := s.text(c, name, path)
	if !ok {
		return "", false
	}
	for _, w := range words {
		if got == w {
			return got, true
		}
	}
	s.error(c.Attributes[name].Expr.Range(), fmt.Sprintf("%s cannot be %s", name, quote(got)), "It is one of "+quotedList(words)+".", suggestion(got, words))
	return "", false
}

// secretText reads a string that may be a secret.
func (s *scope) secretText(c *hcl.BodyContent, name, path string) (text string, ok bool) {
	v, ok := s.value(c.Attributes[name], path, cty.String)
	if !ok {
		return "", false
	}
	return s.keep(v, path), true
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

// texts reads a list of strings that may be secrets. Elements that are null are refused.
func (s *scope) texts(c *hcl.BodyContent, name, path string) (list []string, ok bool) {
	a := c.Attributes[name]
	v, ok := s.value(a, path, cty.List(cty.String))
	if !ok {
		return nil, false
	}
	all := v.HasMark(functions.Sensitive)
	v, _ = v.Unmark()
	list = []string{}
	i := 0
	for it := v.ElementIterator(); it.Next(); i++ {
		_, e := it.Element()
		at := element(path, i)
		u, _ := e.Unmark()
		if u.IsNull() {
			s.error(s.origin.rangeOf(at, a.Expr), fmt.Sprintf("%s is null", at), "Every element needs a value.", "")
			return nil, false
		}
		if !u.IsKnown() {
			return nil, false
		}
		if all {
			e = e.Mark(functions.Sensitive)
		}
		list = append(list, s.keep(e, at))
	}
	return list, true
}

// plainTexts reads a list of strings that are no secrets.
func (s *scope) plainTexts(c *hcl.BodyContent, name, path string) ([]string, bool) {
	list, ok := s.texts(c, name, path)
	for i := range list {
		if s.origin.isSecret(element(path, i)) {
			s.error(c.Attributes[name].Expr.Range(), fmt.Sprintf("%s may not be sensitive", path), "It is printed in plans and results.", "wrap it in nonsensitive() if it is no secret")
			return nil, false
		}
	}
	return list, ok
}

// integer reads a whole number between two bounds.
func (s *scope) integer(c *hcl.BodyContent, name, path string, low, high int64) (int64, bool) {
	f, ok := s.number(c, name, path)
	if !ok {
		return 0, false
	}
	r := c.Attributes[name].Expr.Range()
	n, acc := f.Int64()
	if acc != big.Exact || n < low || n > high {
		want := fmt.Sprintf("a whole number from %d to %d", low, high)
		if high == math.MaxInt64 {
			want = fmt.Sprintf("a whole number of at least %d", low)
		}
		s.error(r, fmt.Sprintf("%s must be %s, not %s", name, want, f.Text('g', 15)), "", "")
		return 0, false
	}
	return n, true
}

// decimal reads a number between two bounds.
func (s *scope) decimal(c *hcl.BodyContent, name, path string, low, high float64, detail string) (float64, bool) {
	f, ok := s.number(c, name, path)
	if !ok {
		return 0, false
	}
	n, _ := f.Float64()
	if n < low || n > high {
		s.error(c.Attributes[name].Expr.Range(), fmt.Sprintf("%s must be a number from %g to %g, not %s", name, low, high, f.Text('g', 15)), detail, "")
		return 0, false
	}
	return n, true
}

func (s *scope) number(c *hcl.BodyContent, name, path string) (*big.Float, bool) {
	a := c.Attributes[name]
	v, ok := s.value(a, path, cty.Number)
	if ok {
		v, ok = s.plain(v, a.Expr, path)
	}
	if !ok {
		return nil, false
	}
	return v.AsBigFloat(), true
}

// duration reads a time with its unit.
func (s *scope) duration(c *hcl.BodyContent, name, path string) (units.Duration, bool) {
	d, ok := united(s, c, name, path, `a duration such as "30s"`, units.ParseDuration)
	return units.Duration(d), ok
}

// united reads a string with a unit. A bare number gets the message of the parser, which names the unit.
func united[T any](s *scope, c *hcl.BodyContent, name, path, want string, parse func(string) (T, error)) (got T, ok bool) {
	a := c.Attributes[name]
	v, ok := s.value(a, path, cty.DynamicPseudoType)
	if ok {
		v, ok = s.plain(v, a.Expr, path)
	}
	if !ok {
		return got, false
	}
	var text string
	switch v.Type() {
	case cty.String:
		text = v.AsString()
	case cty.Number:
		text = v.AsBigFloat().Text('f', -1)
	default:
		s.error(a.Expr.Range(), fmt.Sprintf("%s must be %s, not %s", name, want, kind(v)), "", "")
		return got, false
	}
	got, err := parse(text)
	if err != nil {
		summary, fix, _ := strings.Cut(err.Error(), "; ")
		if v.Type() == cty.Number {
			summary = strings.Replace(summary, quote(text), text, 1)
		}
		s.error(a.Expr.Range(), name+": "+summary, "", fix)
		return got, false
	}
	return got, true
}
