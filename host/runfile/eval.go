package runfile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/diag/hcldiag"
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
				fail(fmt.Sprintf("the variable %q is not declared", name), "",
					cmp.Or(fix, fmt.Sprintf("declare it: variable %q {}", name)))
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
			fail(fmt.Sprintf("nothing is called %s", root),
				"Values begin with var, local, each or path; names inside a for expression are known only there.", fix)
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

// local is one argument of a locals block.
type local struct {
	attr  *hclsyntax.Attribute
	value cty.Value
	state int
}

const (
	localNew  = iota
	localBusy // it is being evaluated: to come back to it is a cycle
	localDone
	localFailed
)

func (l *loader) declareLocals() {
	l.locals = map[string]*local{}
	for _, b := range l.blocks["locals"] {
		body := b.Body.(*hclsyntax.Body)
		for _, inner := range body.Blocks {
			l.failf(inner.TypeRange, "locals", "a locals block has no block %q", inner.Type).
				detail("It holds NAME = VALUE lines.").fix("write %s = { … } for a map", inner.Type)
		}
		for _, a := range sortedAttributes(body) {
			if first, ok := l.locals[a.Name]; ok {
				l.duplicate(a.NameRange, first.attr.NameRange, fmt.Sprintf("the local %q is set twice", a.Name))
				continue
			}
			l.locals[a.Name] = &local{attr: a}
		}
	}
}

// setLocals evaluates all locals, each after those it needs.
func (l *loader) setLocals() bool {
	names := slices.SortedFunc(maps.Keys(l.locals), func(a, b string) int {
		return cmp.Compare(l.locals[a].attr.SrcRange.Start.Byte, l.locals[b].attr.SrcRange.Start.Byte)
	})
	ok := true
	all := make(map[string]cty.Value, len(names))
	for _, name := range names {
		ok = l.setLocal(name, nil) && ok
		all[name] = l.locals[name].value
	}
	l.ctx.Variables["local"] = cty.ObjectVal(all)
	return ok
}

func (l *loader) setLocal(name string, on []string) bool {
	loc := l.locals[name]
	switch loc.state {
	case localDone:
		return true
	case localFailed:
		return false
	case localBusy:
		l.cycle(name, on)
		return false
	}
	loc.state, loc.value = localBusy, cty.DynamicVal
	needs := map[string]cty.Value{}
	ok := len(on) < 1000
	if !ok {
		l.failf(loc.attr.NameRange, "locals", "locals depend on each other in a chain of more than 1,000")
	}
	for _, t := range loc.attr.Expr.Variables() {
		dep := localName(t)
		if !ok || dep == "" || l.locals[dep] == nil {
			continue // eval says what is wrong with it
		}
		if l.setLocal(dep, append(on, name)) {
			needs[dep] = l.locals[dep].value
		} else {
			ok = false
		}
	}
	loc.state = localFailed
	if !ok {
		return false
	}
	ctx := l.ctx.NewChild()
	ctx.Variables = map[string]cty.Value{"local": cty.ObjectVal(needs)}
	v, ok := l.eval(loc.attr.Expr, ctx, "locals")
	if !ok {
		return false
	}
	loc.value, loc.state = v, localDone
	return true
}

// localName is NAME in local.NAME.
func localName(t hcl.Traversal) string {
	if t.RootName() != "local" || len(t) < 2 {
		return ""
	}
	switch step := t[1].(type) {
	case hcl.TraverseAttr:
		return step.Name
	case hcl.TraverseIndex:
		if step.Key.Type() == cty.String && step.Key.IsKnown() && !step.Key.IsNull() {
			return step.Key.AsString()
		}
	}
	return ""
}

func (l *loader) cycle(name string, on []string) {
	ring := append(slices.Clone(on[max(0, slices.Index(on, name)):]), name)
	d := diag.Diagnostic{Severity: diag.Error, Context: "locals",
		Fix: "break the ring: one of them needs a value of its own"}
	if len(ring) == 2 {
		d.Summary = fmt.Sprintf("local.%s refers to itself", name)
		d.Fix = ""
	} else {
		d.Summary = "locals refer to each other in a ring"
		d.Detail = "local." + ring[0] + " needs local." + strings.Join(ring[1:], ", which needs local.") + "."
		for _, n := range ring[1 : len(ring)-1] {
			d.Related = append(d.Related, diag.Related{Note: "local." + n, Range: hcldiag.Range(l.locals[n].attr.NameRange)})
		}
	}
	l.diags = append(l.diags, l.sources.at(d, l.locals[name].attr.NameRange))
}
