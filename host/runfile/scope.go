package runfile

import (
	"fmt"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/dynblock"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/hutch-run/hutch/host/runfile/internal/functions"
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
	if u, marks := v.Unmark(); len(marks) == 0 && u.Type() == cty.String && u.IsKnown() && !u.IsNull() && src == quote(u.AsString()) {
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
