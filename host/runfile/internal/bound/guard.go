package bound

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

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
		e.Condition, e.TrueResult, e.FalseResult = guard(e.Condition, b), force(guard(e.TrueResult, b), b), force(guard(e.FalseResult, b), b)
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
		e.KeyExpr, e.ValExpr, e.CondExpr = force(guard(e.KeyExpr, b), b), force(guard(e.ValExpr, b), b), force(guard(e.CondExpr, b), b)
	case *hclsyntax.SplatExpr:
		e.Source, e.Each = guard(e.Source, b), force(guard(e.Each, b), b)
	}
	return guarded{e, b}
}
