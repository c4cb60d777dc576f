package runfile

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/hashicorp/hcl/v2/json"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/diag/hcldiag"
	"github.com/hutch-run/hutch/host/runfile/internal/bound"
	"github.com/hutch-run/hutch/host/runfile/internal/functions"
)

// variable is one variable block.
type variable struct {
	name        string
	header      hcl.Range
	typ         cty.Type
	defaults    *typeexpr.Defaults // of optional attributes in typ
	typed       bool               // a type was given
	standard    hcl.Expression     // the default, or nil
	description string
	sensitive   bool
	nullable    bool
	validations []validation

	value  cty.Value
	origin string
	where  hcl.Range // of the value, when it stands in a file
	failed bool
}

// validation is one rule of a variable.
type validation struct {
	condition, message hcl.Expression
	block              hcl.Range
}

var (
	variableSchema   = schemaOf("type default description sensitive nullable", "validation")
	validationSchema = schemaOf("condition! error_message!")
)

func (v *variable) context() string { return fmt.Sprintf("variable %q", v.name) }

func (l *loader) declareVariables() {
	l.vars = map[string]*variable{}
	for _, b := range l.blocks["variable"] {
		v := &variable{name: b.Labels[0], header: b.DefRange, typ: cty.DynamicPseudoType, nullable: true}
		if !validVariableName(v.name) {
			l.failf(b.LabelRanges[0], "", "%s cannot be the name of a variable", diag.Quote(v.name)).
				detail("%s", variableNameRule)
			continue
		}
		if first, ok := l.vars[v.name]; ok {
			l.duplicate(b.LabelRanges[0], first.header, fmt.Sprintf("the variable %q is declared twice", v.name))
			continue
		}
		l.vars[v.name] = v
		l.varOrder = append(l.varOrder, v)
		l.declareVariable(v, b)
	}
}

func (l *loader) duplicate(r, first hcl.Range, summary string) {
	l.failf(r, "", "%s", summary).fix("rename or remove one of the two").related("it is declared first here", first)
}

func (l *loader) declareVariable(v *variable, b *hcl.Block) {
	content, ok := l.content(b.Body, variableSchema, "a variable", v.context(), v.header)
	v.failed = !ok
	attrs := content.Attributes
	if a := attrs["type"]; a != nil {
		v.typed = true
		var diags hcl.Diagnostics
		if v.typ, v.defaults, diags = typeexpr.TypeConstraintWithDefaults(a.Expr); diags.HasErrors() {
			v.failed = true
			l.badType(diags, v, a)
			v.typ = cty.DynamicPseudoType
		}
	}
	if a := attrs["default"]; a != nil {
		v.standard = a.Expr
	}
	v.description = l.literalString(v, attrs["description"])
	v.sensitive = l.literalBool(v, attrs["sensitive"], false)
	v.nullable = l.literalBool(v, attrs["nullable"], true)
	for _, block := range content.Blocks {
		c, ok := l.content(block.Body, validationSchema, "a validation block", v.context(), block.DefRange)
		if !ok {
			v.failed = true
			continue
		}
		v.validations = append(v.validations, validation{condition: c.Attributes["condition"].Expr,
			message: c.Attributes["error_message"].Expr, block: block.DefRange})
	}
}

func (l *loader) badType(diags hcl.Diagnostics, v *variable, a *hcl.Attribute) {
	types := []string{"string", "number", "bool", "any", "list", "set", "map", "object", "tuple"}
	for _, d := range diags {
		out := l.sources.fromHCL(d, v.context())
		out.Summary = "this is not a type"
		text := ""
		if d.Subject != nil {
			text = strings.Trim(string(d.Subject.SliceBytes(l.sources[d.Subject.Filename])), `"`)
		}
		if hint := diag.DidYouMean(text, types); hint != "" && out.Fix == "" {
			out.Fix = hint
		} else if v, diags := a.Expr.Value(nil); !diags.HasErrors() && v.Type() == cty.String && !v.IsNull() && v.IsKnown() {
			out.Fix = "write the type without quotes: type = " + v.AsString()
		}
		if out.Detail != "" && out.Fix == "" {
			out.Detail += " Types are string, number, bool, any, list(T), set(T), map(T), tuple([T, …]) and object({name = " +
				"T, …})."
		}
		l.diags = append(l.diags, out)
	}
}

func (l *loader) literalString(v *variable, a *hcl.Attribute) string {
	s := cty.StringVal("")
	l.literal(v, a, &s, "a string in quotes")
	return s.AsString()
}

func (l *loader) literalBool(v *variable, a *hcl.Attribute, otherwise bool) bool {
	b := cty.BoolVal(otherwise)
	l.literal(v, a, &b, "true or false")
	return b.True()
}

// literal reads an argument that says something about the variable itself and can therefore not be computed.
func (l *loader) literal(v *variable, a *hcl.Attribute, into *cty.Value, want string) {
	if a == nil {
		return
	}
	got, diags := a.Expr.Value(nil)
	if !diags.HasErrors() && got.IsWhollyKnown() {
		if c, err := convert.Convert(got, into.Type()); err == nil && !c.IsNull() {
			*into = c
			return
		}
	}
	v.failed = true
	l.failf(a.Expr.Range(), v.context(), "%s must be %s", a.Name, want).
		detail("It is part of the declaration and cannot be computed.")
}

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
		l.file.Variables = append(l.file.Variables, Variable{Name: v.name, Type: typeexpr.TypeString(v.typ),
			Description: v.description,
			Sensitive:   v.sensitive, Origin: v.origin, Value: expression(v.value)})
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
				out.Fix = fmt.Sprintf("its type is %s; on a command line, quote the whole of it: --var '%s=…'",
					typeexpr.TypeString(v.typ), v.name)
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
		return nil, hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "the value is too complex", Detail: sentence(reason),
			Subject: &where}}
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
	l.addVariableError(v, l.sources.at(diag.Diagnostic{Severity: diag.Error, Summary: summary, Detail: detail,
		Context: v.context()}, v.where))
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
		d := diag.Diagnostic{Severity: diag.Error, Summary: fmt.Sprintf("the value of the variable %q is not allowed",
			v.name), Detail: text, Context: v.context()}
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

// Files of variables that are read without being named.
const (
	autoHCL  = ".auto.hutchvars.hcl"
	autoJSON = ".auto.hutchvars.json"
)

// given is what a call brings along for variables.
type given struct {
	lookupEnv func(string) (string, bool)
	sources   sources
	budget    *bound.Budget // for expressions in files of variables
	files     []setting     // of --var-file, in order
	flags     []setting     // of --var, in order
	broken    bool          // a file of variables could not be read
}

// setting gives one variable a value: by text, or by an expression of a file.
type setting struct {
	name   string
	origin string // for a reader: "--var", "HUTCH_VAR_rows" or the file's name
	text   string
	expr   hcl.Expression // nil for text
	where  hcl.Range      // of the name, when it stands in a file
}

// read takes in the options; what is wrong with them is wrong for all run files alike.
func (o *Options) read() (*given, diag.Diagnostics) {
	g := &given{lookupEnv: environ(o.Environ), sources: sources{}, budget: bound.NewBudget()}
	var diags diag.Diagnostics
	for _, kv := range o.Vars {
		name, text, ok := strings.Cut(kv, "=")
		switch {
		case !ok:
			diags = append(diags, diag.Errorf("--var %s has no value", diag.Quote(kv)).WithFix("write --var %s=VALUE", kv))
		case !validVariableName(name):
			diags = append(diags, diag.Errorf("--var sets %s, which cannot be the name of a variable", diag.Quote(name)))
		default:
			g.flags = append(g.flags, setting{name: name, text: text, origin: "--var"})
		}
	}
	for _, path := range o.VarFiles {
		s, ds := g.readFile(path)
		g.files = append(g.files, s...)
		diags = append(diags, ds...)
	}
	return g, diags
}

// readFile reads a file of variables: JSON when its name says so, HCL else.
func (g *given) readFile(path string) ([]setting, diag.Diagnostics) {
	src, d := readSource(path, "file of variables")
	if d != nil {
		g.broken = true
		return nil, diag.Diagnostics{*d}
	}
	g.sources[path] = src
	var diags hcl.Diagnostics
	var attrs hcl.Attributes
	if strings.HasSuffix(path, ".json") {
		attrs, diags = parseJSON(path, src)
	} else {
		var body *hclsyntax.Body
		body, diags = parse(path, src)
		if body != nil {
			bound.Guard(body, g.budget)
			var more hcl.Diagnostics
			attrs, more = body.JustAttributes()
			diags = append(diags, more...)
		}
	}
	g.broken = g.broken || diags.HasErrors()
	var out diag.Diagnostics
	for _, d := range diags {
		od := g.sources.fromHCL(d, "")
		if strings.HasPrefix(d.Summary, "Unexpected ") && strings.HasSuffix(d.Summary, " block") {
			od.Summary, od.Detail = "a file of variables has no blocks",
				"It gives values to variables that a run file declares, one NAME = VALUE a line."
		}
		out = append(out, od)
	}
	var settings []setting
	for name, a := range attrs {
		settings = append(settings, setting{name: name, origin: path, expr: a.Expr, where: a.NameRange})
	}
	slices.SortFunc(settings, func(a, b setting) int { return cmp.Compare(a.where.Start.Byte, b.where.Start.Byte) })
	return settings, out
}

func parseJSON(path string, src []byte) (hcl.Attributes, hcl.Diagnostics) {
	if d := checkText(path, src); d != nil {
		return nil, hcl.Diagnostics{d}
	}
	if i := bound.TooDeep(src); i >= 0 {
		r := hcl.Range{Filename: path, Start: posAt(src, i), End: posAt(src, i+1)}
		return nil, hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "the file is too complex",
			Detail: fmt.Sprintf("Brackets are nested more than %d deep here.", bound.MaxNesting), Subject: &r}}
	}
	file, diags := json.Parse(src, path)
	if diags.HasErrors() {
		return nil, diags[:1]
	}
	attrs, more := file.Body.JustAttributes()
	return attrs, append(diags, more...)
}

// autoFiles lists the files of variables beside a run file that are read without being named.
func autoFiles(dir string) []string {
	entries, _ := os.ReadDir(dir) // reading the run file itself reports a directory that cannot be used
	var found []string
	for _, e := range entries {
		if n := e.Name(); !e.IsDir() && (strings.HasSuffix(n, autoHCL) || strings.HasSuffix(n, autoJSON)) {
			found = append(found, filepath.Join(dir, n))
		}
	}
	return found
}

// undeclared reports settings that no run file of the call has a variable for.
func (g *given) undeclared(loaders []*loader) diag.Diagnostics {
	var names []string
	for _, l := range loaders {
		if l.broken {
			return nil // it is not known what it declares
		}
		names = slices.AppendSeq(names, maps.Keys(l.vars))
	}
	var diags diag.Diagnostics
	for _, s := range slices.Concat(g.files, g.flags) {
		if slices.Contains(names, s.name) {
			continue
		}
		d := diag.Errorf("%s sets the variable %q, and no run file declares it", s.origin, s.name)
		if s.expr != nil {
			d = diag.Errorf("no run file declares the variable %q", s.name)
		}
		d.Fix = cmp.Or(diag.DidYouMean(s.name, names), fmt.Sprintf("declare it: variable %q {}", s.name))
		d = g.sources.at(d, s.where)
		d.Snippet = nil // the value may be the secret of a variable whose name is misspelled
		diags = append(diags, d)
	}
	return diags
}
