package runfile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/go-version"
	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/hutch-run/hutch/host/diag/hcldiag"
	"github.com/hutch-run/hutch/sdk"
)

var (
	hutchSchema = schemaOf("min_isolation", "required_backends")
	isolations  = func() (words []string) {
		for _, l := range sdk.Isolations {
			words = append(words, string(l))
		}
		return words
	}()
)

// settings reads the hutch blocks. They are about the file and not about values, so everything in them is literal.
func (l *loader) settings() {
	s := &scope{loader: l, ctx: &hcl.EvalContext{}, context: "the hutch block",
		origin: &origin{ranges: ranges{}, sources: l.sources, context: "hutch"}}
	seen := map[string]hcl.Range{}
	for i, b := range l.blocks["hutch"] {
		if i > 0 {
			l.failf(b.TypeRange, "", "the file has two hutch blocks").fix("put both into one").
				related("the first one is here", l.blocks["hutch"][0].TypeRange)
			return
		}
		hutch := s.open(b.Body, hutchSchema, "", "a hutch block", b.DefRange)
		if s.literalOnly(hutch.attrs["min_isolation"]) {
			l.file.MinIsolation, _ = hutch.oneOf("min_isolation", isolations...)
		}
		for _, rb := range hutch.nested {
			attrs, diags := rb.Body.JustAttributes()
			l.report(diags, "required_backends")
			names := slices.SortedFunc(maps.Keys(attrs), func(a, b string) int {
				return cmp.Compare(attrs[a].Range.Start.Byte, attrs[b].Range.Start.Byte)
			})
			for _, name := range names {
				a := attrs[name]
				if first, ok := seen[name]; ok {
					l.duplicate(a.NameRange, first, fmt.Sprintf("the backend %q is required twice", name))
					continue
				}
				seen[name] = a.NameRange
				s.requiredBackend(name, a)
			}
		}
	}
}

func (s *scope) literalOnly(a *hcl.Attribute) bool {
	if a == nil {
		return false
	}
	for _, t := range a.Expr.Variables() {
		s.errorf(t.SourceRange(), "%s cannot refer to %s", a.Name, traversalText(t)).
			detail("What the file needs from hutch is known before any value is.")
		return false
	}
	return true
}

func (s *scope) requiredBackend(name string, a *hcl.Attribute) {
	r := RequiredBackend{Name: name, Range: hcldiag.Range(a.NameRange)}
	if !validBackendName(name) {
		s.errorf(a.NameRange, "%s cannot be the name of a backend", quote(name)).detail("%s", backendNameRule)
		return
	}
	pairs, diags := hcl.ExprMap(a.Expr)
	if diags.HasErrors() {
		v, vdiags := a.Expr.Value(nil)
		if vdiags.HasErrors() || v.Type() != cty.String || v.IsNull() {
			s.errorf(a.Expr.Range(), "%s must be a map with version and source", name).
				fix("write %s = { version = \">= 0.1\" }", name)
			return
		}
		s.version(&r, v.AsString(), a.Expr) // the short form: name = "constraint"
		s.file.RequiredBackends = append(s.file.RequiredBackends, r)
		return
	}
	for _, kv := range pairs {
		key := hcl.ExprAsKeyword(kv.Key)
		if key == "" {
			key, _ = literalKey(kv.Key)
		}
		v, diags := kv.Value.Value(nil)
		isText := !diags.HasErrors() && v.Type() == cty.String && !v.IsNull() && v.IsKnown()
		switch {
		case key != "version" && key != "source":
			s.errorf(kv.Key.Range(), "a required backend has no %s", quote(key)).
				detail("It has version and source.").fix("%s", suggestion(key, []string{"version", "source"}))
		case !isText:
			s.errorf(kv.Value.Range(), "%s of %s must be a string in quotes", key, name).
				detail("What the file needs from hutch is known before any value is.")
		case key == "version":
			s.version(&r, v.AsString(), kv.Value)
		default:
			r.Source = v.AsString()
		}
	}
	s.file.RequiredBackends = append(s.file.RequiredBackends, r)
}

func (s *scope) version(r *RequiredBackend, text string, expr hcl.Expression) {
	c, err := version.NewConstraint(text)
	if err != nil || text == "" {
		s.errorf(expr.Range(), "%s is not a version constraint", quote(text)).
			fix(`write ">= 0.1", "~> 1.2" or "1.2.3"; several are joined by commas`)
		return
	}
	r.Version, r.Constraints = text, c
}
