package runfile

import (
	"fmt"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/hutch-run/hutch/host/diag"
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
		v := &variable{name: b.Labels[0], header: hcl.RangeBetween(b.TypeRange, b.LabelRanges[0]), typ: cty.DynamicPseudoType, nullable: true}
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

func (l *loader) declareVariable(v *variable, b *hclsyntax.Block) {
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
			out.Detail += " Types are string, number, bool, any, list(T), set(T), map(T), tuple([T, …]) and object({name = T, …})."
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
