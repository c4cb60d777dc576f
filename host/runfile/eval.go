package runfile

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/hutch-run/hutch/host/diag"
)

// eval evaluates an expression, and reports what is wrong with it. ok is false after an error, and the value is then
// of no use.
func (l *loader) eval(expr hcl.Expression, ctx *hcl.EvalContext, context string) (v cty.Value, ok bool) {
	if !l.references(expr, ctx, context) {
		return cty.DynamicVal, false
	}
	v, diags := expr.Value(ctx)
	if _, reason := l.budget.Spent(); reason != "" || !l.budget.Charge(v, expr.Range()) {
		return cty.DynamicVal, false // load reports it
	}
	l.report(diags, context)
	return v, !diags.HasErrors()
}

// references checks the names that an expression uses before it is evaluated: what HCL says about a missing attribute
// of an object does not help somebody who misspelled a variable.
func (l *loader) references(expr hcl.Expression, ctx *hcl.EvalContext, context string) bool {
	ok := true
	for _, t := range expr.Variables() {
		root, name := t.RootName(), ""
		if len(t) > 1 {
			if a, isAttr := t[1].(hcl.TraverseAttr); isAttr {
				name = a.Name
			}
		}
		fail := func(summary, detail, fix string) {
			ok = false
			l.failf(t.SourceRange(), context, "%s", summary).detail("%s", detail).fix("%s", fix)
		}
		switch root {
		case "var", "local":
			switch {
			case len(t) == 1:
				kind := strings.Replace(root, "var", "variable", 1)
				fail(root+" alone is not a value", "", fmt.Sprintf("name a %s: %s.NAME", kind, root))
			case root == "var" && name != "" && l.vars[name] == nil:
				fix := prefixed("var.", name, sortedKeys(l.vars))
				if fix == "" && l.locals[name] != nil {
					fix = "did you mean local." + name + "?"
				}
				fail(fmt.Sprintf("the variable %q is not declared", name), "", cmp.Or(fix, fmt.Sprintf("declare it: variable %q {}", name)))
			case root == "local" && name != "" && l.locals[name] == nil:
				fix := prefixed("local.", name, sortedKeys(l.locals))
				if fix == "" && l.vars[name] != nil {
					fix = "did you mean var." + name + "?"
				}
				fail(fmt.Sprintf("there is no local %q", name), "", fix)
			}
		case "each":
			if !defines(ctx, "each") {
				fail("each is known only in a run with for_each", "", "add for_each = … to the run, or use a plain value")
			} else if name != "key" && name != "value" {
				fail("each has only key and value", "", "write each.key or each.value")
			}
		default:
			if defines(ctx, root) || len(t) == 0 {
				continue
			}
			fix := ""
			switch {
			case len(t) == 1 && l.vars[root] != nil:
				fix = "did you mean var." + root + "?"
			case len(t) == 1 && l.locals[root] != nil:
				fix = "did you mean local." + root + "?"
			case len(t) == 1:
				fix = fmt.Sprintf("for text, write it in quotes: %q", root)
			default:
				fix = diag.DidYouMean(root, []string{"var", "local", "each", "path"})
			}
			if root == "vars" || root == "locals" {
				fix = fmt.Sprintf("did you mean %s?", root[:len(root)-1]+traversalText(t)[len(root):])
			}
			fail(fmt.Sprintf("nothing is called %s", root), "Values begin with var, local, each or path; names inside a for expression are known only there.", fix)
		}
	}
	return ok
}

func prefixed(prefix, name string, names []string) string {
	if s := diag.Suggest(name, names); s != "" {
		return "did you mean " + prefix + s + "?"
	}
	return ""
}

func defines(ctx *hcl.EvalContext, name string) bool {
	for ; ctx != nil; ctx = ctx.Parent() {
		if _, ok := ctx.Variables[name]; ok {
			return true
		}
	}
	return false
}
