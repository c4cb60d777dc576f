package functions

import (
	"errors"
	"slices"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
)

var (
	// length also counts the characters of a string, as Terraform's does.
	length = function.New(&function.Spec{
		Params: []function.Parameter{{Name: "value", Type: cty.DynamicPseudoType, AllowDynamicType: true, AllowUnknown: true, AllowMarked: true}},
		Type: func(args []cty.Value) (cty.Type, error) {
			t := args[0].Type()
			if t == cty.String || t == cty.DynamicPseudoType || t.IsTupleType() || t.IsObjectType() || t.IsCollectionType() {
				return cty.Number, nil
			}
			return cty.NilType, function.NewArgErrorf(0, "a string, list, set, map, tuple or object is required")
		},
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			v, marks := args[0].Unmark()
			switch t := v.Type(); {
			case !v.IsKnown():
				return cty.UnknownVal(cty.Number).WithMarks(marks), nil
			case t == cty.String:
				n, err := stdlib.Strlen(v)
				return n.WithMarks(marks), err
			case t.IsTupleType() || t.IsObjectType():
				return cty.NumberIntVal(int64(v.LengthInt())).WithMarks(marks), nil
			}
			return v.Length().WithMarks(marks), nil
		},
	})

	// lookup gives the element of a map or object, or the default if there is one.
	lookup = function.New(&function.Spec{
		Params:   []function.Parameter{{Name: "map", Type: cty.DynamicPseudoType}, {Name: "key", Type: cty.String}},
		VarParam: &function.Parameter{Name: "default", Type: cty.DynamicPseudoType, AllowNull: true, AllowDynamicType: true},
		Type: func(args []cty.Value) (cty.Type, error) {
			v, err := lookUp(args)
			if err != nil {
				return cty.NilType, err
			}
			return v.Type(), nil
		},
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) { return lookUp(args) },
	})

	allTrue = boolsFunc(func(bs []bool) bool { return !slices.Contains(bs, false) })
	anyTrue = boolsFunc(func(bs []bool) bool { return slices.Contains(bs, true) })

	sum = function.New(&function.Spec{
		Params: []function.Parameter{{Name: "list", Type: cty.DynamicPseudoType}},
		Type:   function.StaticReturnType(cty.Number),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			vs, err := elements(args[0], cty.Number)
			if err != nil {
				return cty.NilVal, err
			}
			total := cty.Zero
			for _, v := range vs {
				if v.IsNull() {
					return cty.NilVal, function.NewArgErrorf(0, "an element is null")
				}
				total = total.Add(v)
			}
			return total, nil
		},
	})

	// one gives the only element, or null for none.
	one = function.New(&function.Spec{
		Params: []function.Parameter{{Name: "list", Type: cty.DynamicPseudoType}},
		Type: func(args []cty.Value) (cty.Type, error) {
			t := args[0].Type()
			switch {
			case t.IsListType() || t.IsSetType():
				return t.ElementType(), nil
			case t.IsTupleType() && t.Length() == 0:
				return cty.DynamicPseudoType, nil
			case t.IsTupleType() && t.Length() == 1:
				return t.TupleElementType(0), nil
			}
			return cty.NilType, function.NewArgErrorf(0, "a list, set or tuple with at most one element is required")
		},
		Impl: func(args []cty.Value, t cty.Type) (cty.Value, error) {
			switch args[0].LengthInt() {
			case 0:
				return cty.NullVal(t), nil
			case 1:
				it := args[0].ElementIterator()
				it.Next()
				_, v := it.Element()
				return v, nil
			}
			return cty.NilVal, function.NewArgErrorf(0, "it has more than one element")
		},
	})

	// indexOf finds the position of a value in a list.
	indexOf = function.New(&function.Spec{
		Params: []function.Parameter{{Name: "list", Type: cty.DynamicPseudoType}, {Name: "value", Type: cty.DynamicPseudoType}},
		Type:   function.StaticReturnType(cty.Number),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			t := args[0].Type()
			if !t.IsListType() && !t.IsTupleType() {
				return cty.NilVal, function.NewArgErrorf(0, "a list is required")
			}
			for it := args[0].ElementIterator(); it.Next(); {
				i, v := it.Element()
				if eq, err := stdlib.Equal(v, args[1]); err == nil && eq.IsKnown() && eq.True() {
					return i, nil
				}
			}
			return cty.NilVal, errors.New("the value is not in the list")
		},
	})
)

func lookUp(args []cty.Value) (cty.Value, error) {
	if len(args) > 3 {
		return cty.NilVal, errors.New("at most three arguments are taken")
	}
	m, key := args[0], args[1]
	t := m.Type()
	if !t.IsObjectType() && !t.IsMapType() {
		return cty.NilVal, function.NewArgErrorf(0, "a map or object is required")
	}
	if !m.IsKnown() || !key.IsKnown() {
		return cty.DynamicVal, nil
	}
	if t.IsObjectType() && t.HasAttribute(key.AsString()) {
		return m.GetAttr(key.AsString()), nil
	}
	if t.IsMapType() && m.HasIndex(key).True() {
		return m.Index(key), nil
	}
	if len(args) == 2 {
		return cty.NilVal, function.NewArgErrorf(1, "there is no element with the key %q, and no default is given", key.AsString())
	}
	if t.IsMapType() {
		return convert.Convert(args[2], t.ElementType())
	}
	return args[2], nil
}

// elements are the elements of any sequence, converted.
func elements(v cty.Value, t cty.Type) ([]cty.Value, error) {
	if vt := v.Type(); !vt.IsListType() && !vt.IsSetType() && !vt.IsTupleType() {
		return nil, function.NewArgErrorf(0, "a list, set or tuple is required")
	}
	var all []cty.Value
	for it := v.ElementIterator(); it.Next(); {
		_, e := it.Element()
		e, err := convert.Convert(e, t)
		if err != nil {
			return nil, function.NewArgErrorf(0, "an element is not a %s", t.FriendlyName())
		}
		all = append(all, e)
	}
	return all, nil
}

func boolsFunc(f func([]bool) bool) function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "list", Type: cty.List(cty.Bool)}},
		Type:   function.StaticReturnType(cty.Bool),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			var bs []bool
			for it := args[0].ElementIterator(); it.Next(); {
				_, v := it.Element()
				if !v.IsKnown() {
					return cty.UnknownVal(cty.Bool), nil
				}
				bs = append(bs, !v.IsNull() && v.True())
			}
			return cty.BoolVal(f(bs)), nil
		},
	})
}
