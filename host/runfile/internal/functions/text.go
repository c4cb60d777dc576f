package functions

import (
	"crypto/md5" // #nosec G501 -- a checksum that users ask for by name
	"crypto/rand"
	"crypto/sha1" // #nosec G505 -- likewise
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
)

// stringFunc makes a function of strings.
func stringFunc(impl func(args ...string) (cty.Value, error), ret cty.Type, params ...string) function.Function {
	spec := &function.Spec{
		Type: function.StaticReturnType(ret),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			s := make([]string, len(args))
			for i, a := range args {
				s[i] = a.AsString()
			}
			return impl(s...)
		},
	}
	for _, p := range params {
		spec.Params = append(spec.Params, function.Parameter{Name: p, Type: cty.String})
	}
	return function.New(spec)
}

var (
	startsWith = stringFunc(func(s ...string) (cty.Value, error) {
		return cty.BoolVal(strings.HasPrefix(s[0], s[1])),
			nil
	},
		cty.Bool, "string", "prefix")
	endsWith = stringFunc(func(s ...string) (cty.Value, error) { return cty.BoolVal(strings.HasSuffix(s[0], s[1])), nil },
		cty.Bool, "string", "suffix")
	strContains = stringFunc(func(s ...string) (cty.Value, error) {
		return cty.BoolVal(strings.Contains(s[0], s[1])),
			nil
	},
		cty.Bool, "string", "substring")
	baseName = stringFunc(func(s ...string) (cty.Value, error) { return cty.StringVal(path.Base(s[0])), nil }, cty.String,
		"path")
	dirName = stringFunc(func(s ...string) (cty.Value, error) { return cty.StringVal(path.Dir(s[0])), nil }, cty.String,
		"path")

	urlEncode = stringFunc(func(s ...string) (cty.Value, error) { return cty.StringVal(url.QueryEscape(s[0])), nil },
		cty.String, "string")
	urlDecode = stringFunc(func(s ...string) (cty.Value, error) {
		v, err := url.QueryUnescape(s[0])
		if err != nil {
			return cty.NilVal, function.NewArgErrorf(0, "the string is not URL-encoded")
		}
		return text(v)
	}, cty.String, "string")
	base64Encode = stringFunc(func(s ...string) (cty.Value, error) {
		return cty.StringVal(base64.StdEncoding.EncodeToString([]byte(s[0]))), nil
	}, cty.String, "string")
	base64Decode = stringFunc(func(s ...string) (cty.Value, error) {
		v, err := base64.StdEncoding.DecodeString(s[0])
		if err != nil {
			return cty.NilVal, function.NewArgErrorf(0, "the string is not base64")
		}
		return text(string(v))
	}, cty.String, "string")

	hashMD5    = hashFunc(func(b []byte) []byte { h := md5.Sum(b); return h[:] }, hex.EncodeToString)  // #nosec G401
	hashSHA1   = hashFunc(func(b []byte) []byte { h := sha1.Sum(b); return h[:] }, hex.EncodeToString) // #nosec G401
	hashSHA256 = hashFunc(func(b []byte) []byte { h := sha256.Sum256(b); return h[:] }, hex.EncodeToString)
	hashSHA512 = hashFunc(func(b []byte) []byte { h := sha512.Sum512(b); return h[:] }, hex.EncodeToString)

	base64SHA256 = hashFunc(func(b []byte) []byte { h := sha256.Sum256(b); return h[:] },
		base64.StdEncoding.EncodeToString)
	base64SHA512 = hashFunc(func(b []byte) []byte { h := sha512.Sum512(b); return h[:] },
		base64.StdEncoding.EncodeToString)

	uuid = stringFunc(func(...string) (cty.Value, error) {
		var b [16]byte
		_, _ = rand.Read(b[:]) // never fails: it ends the process instead
		b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
		return cty.StringVal(fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])), nil
	}, cty.String)
	timestamp = stringFunc(func(...string) (cty.Value, error) {
		return cty.StringVal(time.Now().UTC().Format(time.RFC3339)), nil
	}, cty.String)

	// replace takes its second argument as a regular expression when it stands between slashes, as Terraform's does.
	replace = stringFunc(func(s ...string) (cty.Value, error) {
		if pattern, ok := slashed(s[1]); ok {
			re, err := regexp.Compile(pattern)
			if err != nil {
				return cty.NilVal, function.NewArgErrorf(1, "the pattern is not a regular expression: %s", regexReason(err))
			}
			return cty.StringVal(re.ReplaceAllString(s[0], s[2])), nil
		}
		return cty.StringVal(strings.ReplaceAll(s[0], s[1], s[2])), nil
	}, cty.String, "string", "substring", "replacement")
)

func hashFunc(sum func([]byte) []byte, encode func([]byte) string) function.Function {
	return stringFunc(func(s ...string) (cty.Value, error) { return cty.StringVal(encode(sum([]byte(s[0])))), nil },
		cty.String, "string")
}

// text refuses bytes that are not text, which cty would silently alter.
func text(s string) (cty.Value, error) {
	if !utf8.ValidString(s) {
		return cty.NilVal, errors.New("the result is not UTF-8 text, and a run file holds only text")
	}
	return cty.StringVal(s), nil
}

// slashed is the pattern in a string such as "/a+/".
func slashed(s string) (string, bool) {
	if len(s) > 1 && s[0] == '/' && s[len(s)-1] == '/' {
		return s[1 : len(s)-1], true
	}
	return "", false
}

func regexReason(err error) string { return strings.TrimPrefix(err.Error(), "error parsing regexp: ") }

var (
	// length also counts the characters of a string, as Terraform's does.
	length = function.New(&function.Spec{
		Params: []function.Parameter{{Name: "value", Type: cty.DynamicPseudoType, AllowDynamicType: true, AllowUnknown: true,
			AllowMarked: true}},
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
		Params: []function.Parameter{{Name: "list", Type: cty.DynamicPseudoType},
			{Name: "value", Type: cty.DynamicPseudoType}},
		Type: function.StaticReturnType(cty.Number),
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
		return cty.NilVal, function.NewArgErrorf(1, "there is no element with the key %q, and no default is given",
			key.AsString())
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
