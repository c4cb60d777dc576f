package functions

import (
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
)

type mark string

// Sensitive marks values that must not be printed or stored.
const Sensitive = mark("sensitive")

// sensitive marks a value, nonsensitive says that a value derived from sensitive ones is not so itself.
var (
	sensitive = function.New(&function.Spec{
		Params: []function.Parameter{anything},
		Type:   sameType,
		Impl:   func(args []cty.Value, _ cty.Type) (cty.Value, error) { return args[0].Mark(Sensitive), nil },
	})
	nonSensitive = function.New(&function.Spec{
		Params: []function.Parameter{anything},
		Type:   sameType,
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			v, _ := args[0].UnmarkDeep()
			return v, nil
		},
	})
	isSensitive = function.New(&function.Spec{
		Params: []function.Parameter{anything},
		Type:   function.StaticReturnType(cty.Bool),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			return cty.BoolVal(args[0].HasMark(Sensitive)), nil
		},
	})
)

var anything = function.Parameter{
	Name: "value", Type: cty.DynamicPseudoType, AllowMarked: true, AllowNull: true, AllowUnknown: true, AllowDynamicType: true,
}

func sameType(args []cty.Value) (cty.Type, error) { return args[0].Type(), nil }
