package runfile

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
)

// fault is the innermost part of a value that cannot become its type.
type fault struct {
	path    []string // parts of the path to it
	text    string   // the same as people write it: [1], .name or ["key"]
	part    cty.Value
	want    cty.Type
	missing string // an attribute that an object lacks
}

// reason says what is wrong, for something called name.
func (f fault) reason(name string) string {
	if f.missing != "" {
		return fmt.Sprintf("%s%s needs the attribute %q", name, f.text, f.missing)
	}
	return fmt.Sprintf("%s%s must be %s, not %s", name, f.text, typeName(f.want), kind(f.part))
}

// misfit finds why a value cannot become a type. It is asked only after the conversion failed.
func misfit(v cty.Value, t cty.Type) fault {
	u, _ := v.Unmark()
	whole := fault{part: v, want: t}
	if u.IsNull() || !u.IsKnown() || !u.CanIterateElements() {
		return whole
	}
	vt := u.Type()
	sequence := vt.IsTupleType() || vt.IsListType() || vt.IsSetType()
	inner := func(i int, key, e cty.Value, want cty.Type) (fault, bool) {
		if _, err := convert.Convert(e, want); err == nil {
			return fault{}, false
		}
		f := misfit(e, want)
		switch {
		case sequence:
			f.path, f.text = append([]string{strconv.Itoa(i)}, f.path...), fmt.Sprintf("[%d]%s", i, f.text)
		case t.IsObjectType():
			f.path, f.text = append([]string{key.AsString()}, f.path...), "."+key.AsString()+f.text
		default:
			f.path, f.text = append([]string{key.AsString()}, f.path...), fmt.Sprintf("[%s]%s", quote(key.AsString()), f.text)
		}
		return f, true
	}
	switch {
	case sequence == (t.IsListType() || t.IsSetType()) && t.IsCollectionType():
		i := 0
		for it := u.ElementIterator(); it.Next(); i++ {
			k, e := it.Element()
			if f, bad := inner(i, k, e, t.ElementType()); bad {
				return f
			}
		}
	case t.IsTupleType() && vt.IsTupleType() && t.Length() == vt.Length():
		for i, e := range u.AsValueSlice() {
			if f, bad := inner(i, cty.NilVal, e, t.TupleElementType(i)); bad {
				return f
			}
		}
	case t.IsObjectType() && !sequence:
		have := u.AsValueMap()
		for _, name := range sortedKeys(t.AttributeTypes()) {
			e, ok := have[name]
			if !ok {
				if !t.AttributeOptional(name) {
					whole.missing = name
					return whole
				}
				continue
			}
			if f, bad := inner(0, cty.StringVal(name), e, t.AttributeType(name)); bad {
				return f
			}
		}
	}
	return whole
}

// narrow finds the range of a part of an expression, or of what holds it.
func narrow(expr hcl.Expression, path []string) hcl.Range {
	r := ranges{}
	r.exprParts(nil, expr)
	found, _, _ := r.find(path)
	return found
}

// keyRange finds where a key of an object constructor is written.
func keyRange(expr hcl.Expression, key string) hcl.Range {
	pairs, diags := hcl.ExprMap(expr)
	if diags.HasErrors() {
		return expr.Range()
	}
	for _, kv := range pairs {
		if k, ok := literalKey(kv.Key); ok && k == key {
			return kv.Key.Range()
		}
	}
	return expr.Range()
}

// kind says what sort of value something is, with its article.
func kind(v cty.Value) string {
	v, _ = v.Unmark()
	if v.IsNull() {
		return "null"
	}
	switch t := v.Type(); {
	case t.IsObjectType(), t.IsMapType():
		return "a map"
	case t.IsTupleType(), t.IsListType():
		return "a list"
	case t.IsSetType():
		return "a set"
	default:
		return typeName(t)
	}
}

// typeName writes a type in words, with its article.
func typeName(t cty.Type) string {
	switch {
	case t == cty.String:
		return "a string"
	case t == cty.Number:
		return "a number"
	case t == cty.Bool:
		return "true or false"
	case t == cty.DynamicPseudoType:
		return "any value"
	case t.IsListType():
		return "a list" + ofMany(t.ElementType())
	case t.IsSetType():
		return "a set" + ofMany(t.ElementType())
	case t.IsMapType():
		return "a map" + ofMany(t.ElementType())
	case t.IsObjectType():
		names := sortedKeys(t.AttributeTypes())
		if len(names) == 0 || len(names) > 8 {
			return "an object"
		}
		return "an object { " + strings.Join(names, ", ") + " }"
	case t.IsTupleType():
		return fmt.Sprintf("a list of %d elements", t.Length())
	}
	return "a value of type " + t.FriendlyName()
}

// ofMany says of what elements a collection is.
func ofMany(t cty.Type) string {
	switch {
	case t == cty.DynamicPseudoType:
		return ""
	case t == cty.Bool:
		return " of true and false"
	}
	// "a list of strings" becomes " of lists of strings".
	_, rest, _ := strings.Cut(typeName(t), " ")
	word, rest, found := strings.Cut(rest, " ")
	if found {
		rest = " " + rest
	}
	return " of " + word + "s" + rest
}
