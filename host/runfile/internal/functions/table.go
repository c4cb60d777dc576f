// Package functions is what run files can call: the functions that users of Terraform and Packer know, under the names
// they know them by.
//
// Where a library has one it is taken from there (go-cty's stdlib, HCL's tryfunc, go-cty-yaml). Every function is
// wrapped: it pays for its arguments from the file's budget before it works, and those that can make much out of little
// are checked for how much that would be. Functions that read files see only the run file's own directory.
package functions

import (
	"github.com/hashicorp/hcl/v2/ext/tryfunc"
	yaml "github.com/zclconf/go-cty-yaml"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"

	"github.com/hutch-run/hutch/host/runfile/internal/bound"
	"github.com/hutch-run/hutch/host/runfile/internal/tree"
)

// Host is what functions may see of the world.
type Host struct {
	Tree      *tree.Root
	LookupEnv func(string) (string, bool)
	Budget    *bound.Budget
}

// Table returns all functions by name. The map is the caller's.
func Table(h Host) map[string]function.Function {
	t := map[string]function.Function{
		// numbers
		"abs": stdlib.AbsoluteFunc, "ceil": stdlib.CeilFunc, "floor": stdlib.FloorFunc, "log": stdlib.LogFunc,
		"max": stdlib.MaxFunc, "min": stdlib.MinFunc, "parseint": stdlib.ParseIntFunc, "pow": stdlib.PowFunc,
		"signum": stdlib.SignumFunc,
		// strings
		"chomp": stdlib.ChompFunc, "endswith": endsWith, "format": stdlib.FormatFunc, "formatlist": stdlib.FormatListFunc,
		"indent": stdlib.IndentFunc, "join": stdlib.JoinFunc, "lower": stdlib.LowerFunc, "regex": stdlib.RegexFunc,
		"regexall": stdlib.RegexAllFunc, "replace": replace, "split": stdlib.SplitFunc, "startswith": startsWith,
		"strcontains": strContains, "strrev": stdlib.ReverseFunc, "substr": stdlib.SubstrFunc, "title": stdlib.TitleFunc,
		"trim": stdlib.TrimFunc, "trimprefix": stdlib.TrimPrefixFunc, "trimspace": stdlib.TrimSpaceFunc,
		"trimsuffix": stdlib.TrimSuffixFunc, "upper": stdlib.UpperFunc,
		// collections
		"alltrue": allTrue, "anytrue": anyTrue, "chunklist": stdlib.ChunklistFunc, "coalesce": stdlib.CoalesceFunc,
		"coalescelist": stdlib.CoalesceListFunc, "compact": stdlib.CompactFunc, "concat": stdlib.ConcatFunc,
		"contains": stdlib.ContainsFunc, "distinct": stdlib.DistinctFunc, "element": stdlib.ElementFunc,
		"flatten": stdlib.FlattenFunc, "index": indexOf, "keys": stdlib.KeysFunc, "length": length, "lookup": lookup,
		"merge": stdlib.MergeFunc, "one": one, "range": stdlib.RangeFunc, "reverse": stdlib.ReverseListFunc,
		"setintersection": stdlib.SetIntersectionFunc, "setproduct": stdlib.SetProductFunc,
		"setsubtract": stdlib.SetSubtractFunc, "setunion": stdlib.SetUnionFunc, "slice": stdlib.SliceFunc,
		"sort": stdlib.SortFunc, "sum": sum, "values": stdlib.ValuesFunc, "zipmap": stdlib.ZipmapFunc,
		// encodings, hashes, identity, time
		"base64decode": base64Decode, "base64encode": base64Encode, "base64sha256": base64SHA256,
		"base64sha512": base64SHA512, "csvdecode": stdlib.CSVDecodeFunc, "formatdate": stdlib.FormatDateFunc,
		"jsondecode": stdlib.JSONDecodeFunc, "jsonencode": stdlib.JSONEncodeFunc, "md5": hashMD5, "sha1": hashSHA1,
		"sha256": hashSHA256, "sha512": hashSHA512, "timeadd": stdlib.TimeAddFunc, "timestamp": timestamp,
		"urldecode": urlDecode, "urlencode": urlEncode, "uuid": uuid, "yamldecode": yaml.YAMLDecodeFunc,
		"yamlencode": yaml.YAMLEncodeFunc,
		// types
		"tobool": stdlib.MakeToFunc(cty.Bool), "tolist": stdlib.MakeToFunc(cty.List(cty.DynamicPseudoType)),
		"tomap":    stdlib.MakeToFunc(cty.Map(cty.DynamicPseudoType)),
		"tonumber": stdlib.MakeToFunc(cty.Number), "toset": stdlib.MakeToFunc(cty.Set(cty.DynamicPseudoType)),
		"tostring": stdlib.MakeToFunc(cty.String),
		// sensitivity
		"issensitive": isSensitive, "nonsensitive": nonSensitive, "sensitive": sensitive,
		// paths, files, environment
		"basename": baseName, "dirname": dirName, "abspath": absPath(h), "env": env(h), "file": file(h),
		"filebase64": fileBase64(h), "fileexists": fileExists(h), "fileset": fileSet(h), "filesha256": fileSHA256(h),
	}
	t["templatefile"] = templateFile(h, t)
	for name, f := range t {
		t[name] = payFor(name, f, h.Budget)
	}
	// These two get expressions, not values, and what they evaluate pays for itself.
	t["try"], t["can"] = tryfunc.TryFunc, tryfunc.CanFunc
	return t
}

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
	Name: "value", Type: cty.DynamicPseudoType, AllowMarked: true, AllowNull: true, AllowUnknown: true,
	AllowDynamicType: true,
}

func sameType(args []cty.Value) (cty.Type, error) { return args[0].Type(), nil }
