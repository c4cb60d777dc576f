package runfile

import (
	"errors"
	"fmt"
	"regexp"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/runfile/internal/functions"
	"github.com/hutch-run/hutch/host/runfile/internal/tree"
)

// didYouMean finds the hint in the details of HCL's diagnostics.
var didYouMean = regexp.MustCompile(` ?Did you mean (to define )?([^?]+)\?( If so, use the equals sign to assign it a value\.)?`)

// fromHCL puts a diagnostic of the HCL library into hutch's form: the hint becomes the fix, errors of files bring
// theirs, and the values that the expression used are listed.
func (s sources) fromHCL(d *hcl.Diagnostic, context string) diag.Diagnostic {
	out := diag.Diagnostic{Severity: diag.Error, Summary: lowerFirst(d.Summary), Detail: d.Detail, Context: context}
	if d.Severity == hcl.DiagWarning {
		out.Severity = diag.Warning
	}
	if m := didYouMean.FindStringSubmatch(out.Detail); m != nil {
		out.Detail = strings.TrimSpace(didYouMean.ReplaceAllString(out.Detail, ""))
		out.Fix = "did you mean " + m[2] + "?"
	}
	if rewrite, ok := rewrites[d.Summary]; ok {
		rewrite(&out, d)
	}
	var call hclsyntax.FunctionCallDiagExtra
	if c, ok := hcl.DiagnosticExtra[hclsyntax.FunctionCallDiagExtra](d); ok {
		call = c
	}
	var file *tree.Error
	if call != nil && call.CalledFunctionName() != "" && call.FunctionCallError() != nil {
		name := call.CalledFunctionName()
		if errors.As(call.FunctionCallError(), &file) {
			out.Summary, out.Detail, out.Fix = fmt.Sprintf("%s() cannot read %s", name, diag.Quote(file.Path)), sentence(file.Reason), file.Fix
		} else if d.Summary == "Error in function call" {
			out.Summary, out.Detail = fmt.Sprintf("%s() failed", name), sentence(call.FunctionCallError().Error())
		} else {
			out.Summary = fmt.Sprintf("wrong argument for %s()", name)
		}
	}
	if d.Subject != nil {
		out = s.at(out, *d.Subject)
	}
	if d.Expression != nil && d.EvalContext != nil {
		out.Values = values(d.Expression, d.EvalContext)
	}
	return out
}

// rewrites say better what users see most often.
var rewrites = map[string]func(*diag.Diagnostic, *hcl.Diagnostic){
	"Invalid character": func(out *diag.Diagnostic, _ *hcl.Diagnostic) {
		if strings.Contains(out.Detail, "single quotes") || strings.Contains(out.Detail, "Single quotes") {
			out.Summary, out.Detail, out.Fix = "strings are written in double quotes", "Single quotes mean nothing in HCL.", `write "text"`
		}
	},
	"Attribute redefined": func(out *diag.Diagnostic, _ *hcl.Diagnostic) {
		out.Summary = "the same argument is set twice"
		out.Detail = strings.Replace(out.Detail, "Each argument may be set only once.", "", 1)
		out.Fix = "remove one of the two"
	},
	"Unclosed configuration block": func(out *diag.Diagnostic, _ *hcl.Diagnostic) {
		out.Summary, out.Detail, out.Fix = "this block is not closed", "There is no closing brace for it before the end of the file.", "add a } where the block ends"
	},
	"Unknown variable":         func(out *diag.Diagnostic, _ *hcl.Diagnostic) { out.Summary = "nothing has this name" },
	"Call to unknown function": func(out *diag.Diagnostic, _ *hcl.Diagnostic) { out.Summary = "there is no such function" },
	"Invalid template interpolation value": func(out *diag.Diagnostic, _ *hcl.Diagnostic) {
		out.Summary = "this value cannot be part of a string"
	},
}

func lowerFirst(s string) string {
	r, n := utf8.DecodeRuneInString(s)
	if r < 'A' || r > 'Z' {
		return s
	}
	if next, _ := utf8.DecodeRuneInString(s[n:]); next >= 'A' && next <= 'Z' { // HCL, JSON
		return s
	}
	return strings.ToLower(s[:n]) + s[n:]
}

// values lists what the references of an expression stood for, as far as that helps and may be shown.
func values(expr hcl.Expression, ctx *hcl.EvalContext) []diag.Value {
	var vs []diag.Value
	seen := map[string]bool{}
	for _, t := range expr.Variables() {
		v, diags := t.TraverseAbs(ctx)
		if diags.HasErrors() {
			continue
		}
		name := traversalText(t)
		if seen[name] || len(vs) == 4 {
			continue
		}
		seen[name] = true
		if text := describe(v); text != "" {
			vs = append(vs, diag.Value{Name: name, Text: text})
		}
	}
	sort.Slice(vs, func(i, j int) bool { return vs[i].Name < vs[j].Name })
	return vs
}

func traversalText(t hcl.Traversal) string {
	var b strings.Builder
	for _, step := range t {
		switch step := step.(type) {
		case hcl.TraverseRoot:
			b.WriteString(step.Name)
		case hcl.TraverseAttr:
			b.WriteString("." + step.Name)
		case hcl.TraverseIndex:
			if step.Key.Type() == cty.String {
				b.WriteString("[" + diag.Quote(step.Key.AsString()) + "]")
			} else if step.Key.Type() == cty.Number {
				b.WriteString("[" + step.Key.AsBigFloat().Text('f', -1) + "]")
			}
		}
	}
	return b.String()
}

// describe shows a value in a few words: itself when it is small, else what it is. Sensitive values are "sensitive".
func describe(v cty.Value) string {
	switch {
	case v == cty.NilVal:
		return ""
	case v.HasMark(functions.Sensitive):
		return "sensitive"
	}
	v, _ = v.Unmark()
	t := v.Type()
	switch {
	case !v.IsKnown():
		return "not known yet"
	case v.IsNull():
		return "null"
	case t == cty.String:
		return diag.Quote(v.AsString())
	case t == cty.Number:
		return v.AsBigFloat().Text('g', 20)
	case t == cty.Bool:
		return fmt.Sprint(v.True())
	case t.IsObjectType():
		return plural(len(t.AttributeTypes()), "an object with no attributes", "object with 1 attribute", "object with %d attributes")
	case t.IsTupleType():
		return plural(t.Length(), "an empty list", "list with 1 element", "list with %d elements")
	case t.IsCollectionType():
		n := v.LengthInt()
		return plural(n, "an empty "+t.FriendlyName(), t.FriendlyName()+" with 1 element", t.FriendlyName()+" with %d elements")
	}
	return t.FriendlyName()
}

func plural(n int, none, one, many string) string {
	switch n {
	case 0:
		return none
	case 1:
		return "a " + one
	}
	return fmt.Sprintf("a "+many, n)
}

// kind says what sort of value something is, with its article.
func kind(v cty.Value) string {
	v, _ = v.Unmark()
	if v.IsNull() {
		return "null"
	}
	return typeName(v.Type())
}

func typeName(t cty.Type) string {
	switch {
	case t == cty.String:
		return "a string"
	case t == cty.Number:
		return "a number"
	case t == cty.Bool:
		return "a bool"
	case t.IsObjectType(), t.IsMapType():
		return "a map"
	case t.IsTupleType(), t.IsListType():
		return "a list"
	case t.IsSetType():
		return "a set"
	}
	return "a value of type " + t.FriendlyName()
}
