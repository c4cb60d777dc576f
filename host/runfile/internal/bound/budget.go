// Package bound keeps a hostile HCL file from costing more than a moment: CheckTokens refuses what the parser would
// recurse into too deeply, and Guard makes every expression of a parsed file pay for its steps and its results from a
// Budget, because HCL itself stops neither nested loops nor values that double at every step.
package bound

import (
	"math/big"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// What one file may cost. Both are far above what any sensible file needs and far below what would be felt.
const (
	MaxSteps = 300_000  // elements looked at or made
	MaxBytes = 64 << 20 // bytes of strings made
)

// maxExponent is the largest binary exponent of a number. Beyond it a few characters of source could stand for
// gigabytes of digits.
const maxExponent = 4096

// Budget is what the evaluation of one file may still cost. Once it is spent it stays spent, whatever try() and can()
// make of the errors; ask Spent after an evaluation. Not safe for concurrent use.
type Budget struct {
	steps, bytes int64
	spent        string
	where        hcl.Range
}

// NewBudget returns a full budget.
func NewBudget() *Budget { return &Budget{steps: MaxSteps, bytes: MaxBytes} }

// Spent says where and why the budget ran out; the reason is empty while it lasts.
func (b *Budget) Spent() (hcl.Range, string) { return b.where, b.spent }

// Charge takes the cost of looking through v, and reports whether the budget lasts.
func (b *Budget) Charge(v cty.Value, where hcl.Range) bool {
	if b.spent == "" {
		b.steps--
		b.charge(v, where)
	}
	return b.spent == ""
}

// Take takes steps and bytes that are known before anything is made, and reports whether the budget lasts.
func (b *Budget) Take(steps, bytes int64, where hcl.Range) bool {
	if b.spent == "" {
		b.steps -= min(steps, MaxSteps+1)
		b.bytes -= min(bytes, MaxBytes+1)
		b.settle(where)
	}
	return b.spent == ""
}

func (b *Budget) settle(where hcl.Range) {
	switch {
	case b.spent != "":
	case b.steps < 0:
		b.spent, b.where = "it makes more elements than a run file may (300,000 in all)", where
	case b.bytes < 0:
		b.spent, b.where = "it makes more text than a run file may (64 MiB in all)", where
	}
}

func (b *Budget) charge(v cty.Value, where hcl.Range) {
	b.steps--
	if b.settle(where); b.spent != "" || v == cty.NilVal {
		return
	}
	v, _ = v.Unmark()
	if v.IsNull() || !v.IsKnown() {
		return
	}
	switch t := v.Type(); {
	case t == cty.String:
		b.bytes -= int64(len(v.AsString()))
		b.settle(where)
	case t == cty.Number:
		if !sane(v.AsBigFloat()) {
			b.spent, b.where = "it makes a number with more than 1,200 digits", where
		}
	case t.IsCollectionType() || t.IsTupleType() || t.IsObjectType():
		for it := v.ElementIterator(); it.Next(); {
			if b.spent != "" {
				return
			}
			_, e := it.Element()
			b.charge(e, where)
		}
	}
}

// sane reports whether a number can be written out in reasonable space.
func sane(f *big.Float) bool {
	if f.IsInf() {
		return true
	}
	e := f.MantExp(nil)
	return e <= maxExponent && e >= -maxExponent
}

// guarded is an expression that pays for its result. Embedding the expression keeps it a native one, so that the
// walkers of hclsyntax go through it; it must therefore never hold a kind of expression that those look for, which are
// references only. UnwrapExpression keeps static analysis (hcl.ExprList and the like) working.
type guarded struct {
	hclsyntax.Expression
	budget *Budget
}

func (g guarded) UnwrapExpression() hcl.Expression { return g.Expression }

// Value evaluates the expression unless the budget is spent. Then everything is unknown, at no cost and without
// further errors: Budget.Spent has the one that counts.
func (g guarded) Value(ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	if _, reason := g.budget.Spent(); reason != "" {
		return cty.DynamicVal, nil
	}
	v, diags := g.Expression.Value(ctx)
	if !g.budget.Charge(v, g.Range()) {
		return cty.DynamicVal, nil
	}
	return v, diags
}

// Guard puts every expression of a body under the budget. It changes the body and is called once on each.
func Guard(body *hclsyntax.Body, b *Budget) {
	for _, a := range body.Attributes {
		a.Expr = guard(a.Expr, b)
	}
	for _, block := range body.Blocks {
		if block.Type == "dynamic" {
			// How often the content is made depends on a value, and nothing else counts how often it is.
			if a := block.Body.Attributes["for_each"]; a != nil {
				a.Expr = force(a.Expr, b)
			}
		}
		Guard(block.Body, b)
	}
}

// GuardExpr puts one expression under the budget, whatever its kind.
func GuardExpr(e hclsyntax.Expression, b *Budget) hclsyntax.Expression { return force(guard(e, b), b) }

// force is guard for places that are evaluated many times: there a plain reference pays too. The parentheses keep the
// reference visible to the walkers.
func force(e hclsyntax.Expression, b *Budget) hclsyntax.Expression {
	switch e.(type) {
	case nil, guarded:
		return e
	}
	return guarded{&hclsyntax.ParenthesesExpr{Expression: e, SrcRange: e.Range()}, b}
}

func guard(e hclsyntax.Expression, b *Budget) hclsyntax.Expression {
	switch e := e.(type) {
	case nil, *hclsyntax.ScopeTraversalExpr, *hclsyntax.AnonSymbolExpr:
		return e
	case guarded:
		return e
	case *hclsyntax.LiteralValueExpr:
		if v := e.Val; v.Type() == cty.Number && v.IsKnown() && !v.IsNull() && !sane(v.AsBigFloat()) {
			return guarded{e, b}
		}
		return e
	case *hclsyntax.ParenthesesExpr:
		e.Expression = guard(e.Expression, b)
		return e
	case *hclsyntax.RelativeTraversalExpr:
		e.Source = guard(e.Source, b)
		return e
	case *hclsyntax.TemplateWrapExpr:
		e.Wrapped = guard(e.Wrapped, b)
		return e
	case *hclsyntax.ObjectConsKeyExpr:
		e.Wrapped = guard(e.Wrapped, b)
		return e
	case *hclsyntax.UnaryOpExpr:
		e.Val = guard(e.Val, b)
		return e
	case *hclsyntax.TemplateJoinExpr:
		e.Tuple = guard(e.Tuple, b)
		return e
	case *hclsyntax.TemplateExpr:
		for i, part := range e.Parts {
			if _, literal := part.(*hclsyntax.LiteralValueExpr); !literal {
				e.Parts[i] = force(guard(part, b), b)
			}
		}
		if e.IsStringLiteral() {
			return e
		}
	case *hclsyntax.BinaryOpExpr:
		e.LHS, e.RHS = guard(e.LHS, b), guard(e.RHS, b)
		if e.Op == hclsyntax.OpEqual || e.Op == hclsyntax.OpNotEqual { // these look through all of both
			e.LHS, e.RHS = force(e.LHS, b), force(e.RHS, b)
		}
	case *hclsyntax.ConditionalExpr: // finds a common type of both results, the unused one included
		e.Condition, e.TrueResult, e.FalseResult = guard(e.Condition, b), force(guard(e.TrueResult, b), b),
			force(guard(e.FalseResult, b), b)
	case *hclsyntax.IndexExpr:
		e.Collection, e.Key = guard(e.Collection, b), guard(e.Key, b)
	case *hclsyntax.FunctionCallExpr:
		for i := range e.Args {
			e.Args[i] = guard(e.Args[i], b)
		}
	case *hclsyntax.TupleConsExpr:
		for i := range e.Exprs {
			e.Exprs[i] = guard(e.Exprs[i], b)
		}
	case *hclsyntax.ObjectConsExpr:
		for i := range e.Items {
			e.Items[i].KeyExpr, e.Items[i].ValueExpr = guard(e.Items[i].KeyExpr, b), guard(e.Items[i].ValueExpr, b)
		}
	case *hclsyntax.ForExpr:
		e.CollExpr = guard(e.CollExpr, b)
		e.KeyExpr, e.ValExpr, e.CondExpr = force(guard(e.KeyExpr, b), b), force(guard(e.ValExpr, b), b),
			force(guard(e.CondExpr, b), b)
	case *hclsyntax.SplatExpr:
		e.Source, e.Each = guard(e.Source, b), force(guard(e.Each, b), b)
	}
	return guarded{e, b}
}
