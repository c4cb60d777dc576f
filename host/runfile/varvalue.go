package runfile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/diag/hcldiag"
	"github.com/hutch-run/hutch/host/runfile/internal/bound"
	"github.com/hutch-run/hutch/host/runfile/internal/functions"
)

// setVariables finds the value of every variable. It reports whether all have one that fits.
func (l *loader) setVariables() bool {
	settings := l.settingsFor()
	ok := true
	values := map[string]cty.Value{}
	for _, v := range l.varOrder {
		if !v.failed {
			l.setVariable(v, settings[v.name])
		}
		if v.failed {
			ok = false
			v.value = cty.UnknownVal(v.typ)
		}
		if v.sensitive {
			v.value = v.value.Mark(functions.Sensitive)
		}
		values[v.name] = v.value
	}
	l.ctx.Variables["var"] = cty.ObjectVal(values)
	for _, v := range l.varOrder {
		if !v.failed && !l.validate(v) {
			ok = false
		}
		l.file.Variables = append(l.file.Variables, Variable{Name: v.name, Type: typeexpr.TypeString(v.typ), Description: v.description,
			Sensitive: v.sensitive, Origin: v.origin, Value: expression(v.value)})
	}
	return ok
}

// settingsFor collects what sets variables, weakest first.
func (l *loader) settingsFor() map[string][]setting {
	all := map[string][]setting{}
	if len(l.vars) == 0 {
		return all // no need to look for files
	}
	for name := range l.vars {
		if text, ok := l.given.lookupEnv("HUTCH_VAR_" + name); ok {
			all[name] = append(all[name], setting{name: name, text: text, origin: "HUTCH_VAR_" + name})
		}
	}
	for _, path := range autoFiles(l.file.Dir) {
		settings, diags := l.given.readFile(path)
		l.sources[path] = l.given.sources[path]
		l.diags = append(l.diags, diags...)
		for _, s := range settings {
			// A directory has many run files and one set of automatic values, so an unknown name is no error.
			if l.vars[s.name] == nil {
				if hint := diag.DidYouMean(s.name, sortedKeys(l.vars)); hint != "" {
					l.failf(s.where, "", "%s declares no variable %q", l.path, s.name).fix("%s", hint).
						warning().withhold() // the value may be a secret
				}
				continue
			}
			all[s.name] = append(all[s.name], s)
		}
	}
	for _, s := range slices.Concat(l.given.files, l.given.flags) {
		all[s.name] = append(all[s.name], s)
	}
	return all
}

func (l *loader) setVariable(v *variable, settings []setting) {
	var value cty.Value
	switch {
	case len(settings) > 0:
		s := settings[len(settings)-1]
		v.origin, v.where = s.origin, s.where
		var ok bool
		if value, ok = l.settingValue(v, s); !ok {
			v.failed = true
			return
		}
		if value.IsNull() && !v.nullable && v.standard != nil {
			value = l.standardValue(v)
		}
	case v.standard != nil:
		value = l.standardValue(v)
	case l.options.AllowMissing:
		v.origin, v.value = "missing", cty.UnknownVal(v.typ)
		return
	case l.given.broken:
		v.failed = true // a file that could not be read may hold the value
		return
	default:
		v.failed = true
		detail := ""
		if v.description != "" {
			detail = sentence("Its description: " + v.description)
		}
		l.failf(v.header, "", "the variable %q has no value", v.name).detail("%s", detail).
			fix("set it with --var %s=VALUE or HUTCH_VAR_%s, or give it a default", v.name, v.name)
		return
	}
	if value == cty.NilVal {
		v.failed = true
		return
	}
	v.value = value
	if value.IsNull() && !v.nullable {
		v.failed = true
		l.variableError(v, fmt.Sprintf("the variable %q may not be null", v.name), "It is declared with nullable = false.")
	}
}

// standardValue evaluates the default: functions may be used in it, other values not.
func (l *loader) standardValue(v *variable) cty.Value {
	v.origin, v.where = "default", v.standard.Range()
	ctx := &hcl.EvalContext{Functions: l.functions, Variables: map[string]cty.Value{}}
	for _, t := range v.standard.Variables() {
		l.failf(t.SourceRange(), v.context(), "a default cannot refer to %s", traversalText(t)).
			detail("Defaults stand for themselves: they are known before any other value is.").
			fix("compute it in a locals block from the variable")
		return cty.NilVal
	}
	value, diags := v.standard.Value(ctx)
	l.report(diags, v.context())
	if diags.HasErrors() || !l.budget.Charge(value, v.standard.Range()) {
		return cty.NilVal
	}
	value, ok := l.convertVariable(v, value, v.standard)
	if !ok {
		return cty.NilVal
	}
	return value
}

// settingValue evaluates what a flag, a file or the environment says.
func (l *loader) settingValue(v *variable, s setting) (cty.Value, bool) {
	expr := s.expr
	if expr == nil {
		if !v.typed || v.typ.IsPrimitiveType() {
			return l.convertVariable(v, cty.StringVal(s.text), nil)
		}
		name := fmt.Sprintf("%s %s", s.origin, v.name)
		if s.origin != "--var" {
			name = s.origin
		}
		l.sources[name] = []byte(s.text)
		parsed, diags := parseValue(name, []byte(s.text), l.budget)
		if diags.HasErrors() {
			for _, d := range diags[:1] {
				out := l.sources.fromHCL(d, v.context())
				out.Summary = fmt.Sprintf("the value of %q is not an HCL expression", v.name)
				out.Fix = fmt.Sprintf("its type is %s; on a command line, quote the whole of it: --var '%s=…'", typeexpr.TypeString(v.typ), v.name)
				l.addVariableError(v, out)
			}
			return cty.NilVal, false
		}
		expr = parsed
	}
	value, diags := expr.Value(nil)
	if diags.HasErrors() {
		for _, d := range diags {
			out := l.sources.fromHCL(d, v.context())
			if d.Summary == "Variables not allowed" || d.Summary == "Function calls not allowed" {
				out.Summary = fmt.Sprintf("the value of the variable %q refers to something else", v.name)
				out.Detail = "Values of variables stand for themselves; text is written in quotes."
			}
			l.addVariableError(v, out)
		}
		return cty.NilVal, false
	}
	if _, reason := l.given.budget.Spent(); reason != "" || !l.budget.Charge(value, expr.Range()) {
		l.failf(expr.Range(), v.context(), "this value costs too much to evaluate").detail("%s", sentence(reason))
		return cty.NilVal, false
	}
	return l.convertVariable(v, value, expr)
}

// parseValue parses a single expression under a budget.
func parseValue(name string, src []byte, b *bound.Budget) (hcl.Expression, hcl.Diagnostics) {
	if d := checkText(name, src); d != nil {
		return nil, hcl.Diagnostics{d}
	}
	tokens, _ := hclsyntax.LexExpression(src, name, hcl.InitialPos) // the parser reports what is wrong with them
	if where, reason := bound.CheckTokens(tokens); reason != "" {
		return nil, hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "the value is too complex", Detail: sentence(reason), Subject: &where}}
	}
	expr, diags := hclsyntax.ParseExpression(src, name, hcl.InitialPos)
	if diags.HasErrors() {
		return nil, diags
	}
	return bound.GuardExpr(expr, b), nil
}

// convertVariable fills in optional attributes and converts to the declared type.
func (l *loader) convertVariable(v *variable, value cty.Value, expr hcl.Expression) (cty.Value, bool) {
	if v.defaults != nil && !value.IsNull() {
		value = v.defaults.Apply(value)
	}
	if converted, err := convert.Convert(value, v.typ); err == nil {
		return converted, true
	}
	bad := misfit(value, v.typ)
	if expr != nil {
		v.where = narrow(expr, bad.path)
	}
	declared := strings.Join(strings.Fields(typeexpr.TypeString(v.typ)), " ")
	detail := fmt.Sprintf("Its type is %s, and %s.", declared, bad.reason(v.name))
	if s, _ := bad.part.Unmark(); !v.sensitive && s.Type() == cty.String && s.IsKnown() && !s.IsNull() {
		detail = fmt.Sprintf("Its type is %s, and %s is not %s.", declared, diag.Quote(s.AsString()), typeName(bad.want))
	}
	l.variableError(v, fmt.Sprintf("the value of the variable %q has the wrong type", v.name), detail)
	return cty.NilVal, false
}

// variableError reports an error about the value of a variable, where it was given.
func (l *loader) variableError(v *variable, summary, detail string) {
	l.addVariableError(v, l.sources.at(diag.Diagnostic{Severity: diag.Error, Summary: summary, Detail: detail, Context: v.context()}, v.where))
}

// addVariableError adds where the value came from and where the variable is declared, and keeps the value of a
// sensitive one out of it.
func (l *loader) addVariableError(v *variable, d diag.Diagnostic) {
	if v.sensitive {
		d.Snippet, d.Values = nil, nil
	}
	if v.origin != "default" {
		if v.where.Filename == "" {
			d.Detail = strings.TrimSpace(d.Detail + fmt.Sprintf(" The value came from %s.", v.origin))
		}
		d.Related = append(d.Related, diag.Related{Note: "the variable is declared here", Range: hcldiag.Range(v.header)})
	}
	l.diags = append(l.diags, d)
}

// validate checks the rules of a variable.
func (l *loader) validate(v *variable) bool {
	ok := true
	for _, rule := range v.validations {
		for _, e := range []hcl.Expression{rule.condition, rule.message} {
			for _, t := range e.Variables() {
				if root := t.RootName(); root == "local" || root == "each" {
					l.failf(t.SourceRange(), v.context(), "a validation cannot refer to %s", traversalText(t)).
						detail("Variables are checked before locals and runs are known.")
					return false
				}
			}
		}
		got, evaluated := l.eval(rule.condition, l.ctx, v.context())
		if !evaluated {
			return false
		}
		got, _ = got.Unmark()
		got, err := convert.Convert(got, cty.Bool)
		if err != nil || got.IsNull() {
			l.failf(rule.condition.Range(), v.context(), "a condition must be true or false")
			return false
		}
		if !got.IsKnown() || got.True() {
			continue
		}
		ok = false
		message, evaluated := l.eval(rule.message, l.ctx, v.context())
		if !evaluated {
			return false
		}
		text := "(The message of the rule holds a sensitive value and is not shown.)"
		if m, err := convert.Convert(message, cty.String); err == nil && !m.IsMarked() && m.IsKnown() && !m.IsNull() {
			text = m.AsString()
		}
		d := diag.Diagnostic{Severity: diag.Error, Summary: fmt.Sprintf("the value of the variable %q is not allowed", v.name), Detail: text, Context: v.context()}
		d.Values = values(rule.condition, l.ctx)
		d = l.sources.at(d, v.where)
		d.Related = []diag.Related{{Note: "the rule is here", Range: hcldiag.Range(rule.block)}}
		if v.where.Filename == "" {
			d.Detail += fmt.Sprintf(" The value came from %s.", v.origin)
		}
		if v.sensitive {
			d.Snippet, d.Values = nil, nil
		}
		l.diags = append(l.diags, d)
	}
	return ok
}

// expression writes a value as HCL, without what is sensitive.
func expression(v cty.Value) string {
	if v == cty.NilVal {
		return ""
	}
	if v.ContainsMarked() {
		return Redacted
	}
	if !v.IsWhollyKnown() {
		return "(unknown)"
	}
	return string(hclwrite.TokensForValue(v).Bytes())
}
