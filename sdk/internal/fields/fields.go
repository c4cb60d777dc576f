// Package fields copies between the Go types of the contract and the messages of the wire: each field into the one of
// the same name on the other side, so that a new field needs no code of its own. Both halves of the contract use it
// (package sdk and package sdk/client), and a test of the client sends every field of every type through both.
package fields

import (
	"math"
	"reflect"
	"strings"
	"sync"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// Copy copies the fields of the struct that src points to into those of the struct that dst points to. Names are
// compared without case and without the unit or format that a message's field has in its name (timeout_ns,
// config_json). Text and bytes, structs and pointers to them, enums and their names, and numbers are converted into
// each other; a number that is out of range becomes the nearest one. What is absent or empty leaves dst as it is, and
// so does a pair of other types, such as a map: the caller converts that.
func Copy(dst, src any) { copier{}.set(reflect.ValueOf(dst).Elem(), reflect.ValueOf(src).Elem()) }

// Clean is Copy for what comes from a backend: text is made valid UTF-8, because the wire takes nothing else.
func Clean(dst, src any) {
	copier{clean: true}.set(reflect.ValueOf(dst).Elem(), reflect.ValueOf(src).Elem())
}

// UTF8 makes text valid UTF-8.
func UTF8(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

type copier struct{ clean bool }

func (c copier) set(dst, src reflect.Value) {
	present := src.Kind() == reflect.Pointer
	if present {
		if src.IsNil() {
			return
		}
		src = src.Elem()
	}
	if dst.Kind() == reflect.Pointer {
		if src.Kind() != reflect.Struct || dst.Type().Elem().Kind() != reflect.Struct || !present && src.IsZero() {
			return
		}
		dst.Set(reflect.New(dst.Type().Elem()))
		dst = dst.Elem()
	}
	switch {
	case dst.Kind() == reflect.Struct && src.Kind() == reflect.Struct:
		for _, pair := range pairs(dst.Type(), src.Type()) {
			c.set(dst.Field(pair[0]), src.Field(pair[1]))
		}
	case isText(dst) && isText(src):
		c.text(dst, src)
	case dst.Kind() == reflect.Slice && src.Kind() == reflect.Slice:
		if src.Len() > 0 {
			c.slice(dst, src)
		}
	case dst.Kind() == reflect.String:
		if e, ok := src.Interface().(protoreflect.Enum); ok {
			dst.SetString(nameOf(e))
		}
	case src.Kind() == reflect.String:
		if e, ok := dst.Interface().(protoreflect.Enum); ok {
			dst.SetInt(int64(numberOf(e, src.String())))
		}
	default:
		number(dst, src)
	}
}

// isText says whether v is a string or bytes.
func isText(v reflect.Value) bool {
	return v.Kind() == reflect.String || v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8
}

func (c copier) text(dst, src reflect.Value) {
	switch {
	case src.Len() == 0:
	case dst.Kind() == reflect.String && src.Kind() == reflect.String && c.clean:
		dst.SetString(UTF8(src.String()))
	case dst.Kind() == reflect.String && src.Kind() == reflect.String:
		dst.SetString(src.String())
	case dst.Kind() == reflect.String:
		dst.SetString(string(src.Bytes()))
	case src.Kind() == reflect.String:
		dst.SetBytes([]byte(src.String()))
	default:
		dst.SetBytes(src.Bytes())
	}
}

func (c copier) slice(dst, src reflect.Value) {
	dst.Set(reflect.MakeSlice(dst.Type(), src.Len(), src.Len()))
	for i := range src.Len() {
		to := dst.Index(i)
		if to.Kind() == reflect.Pointer { // an element is there even if it is zero
			to.Set(reflect.New(to.Type().Elem()))
			to = to.Elem()
		}
		c.set(to, src.Index(i))
	}
}

func number(dst, src reflect.Value) {
	switch {
	case dst.CanFloat() && src.CanFloat():
		dst.SetFloat(src.Float())
	case dst.Kind() == reflect.Bool && src.Kind() == reflect.Bool:
		dst.SetBool(src.Bool())
	case dst.CanInt() && (src.CanInt() || src.CanUint()):
		most := int64(math.MaxInt64) >> (64 - dst.Type().Bits())
		n := most
		if src.CanInt() {
			n = src.Int()
		} else if src.Uint() < uint64(most) {
			n = int64(src.Uint())
		}
		dst.SetInt(min(max(n, -most-1), most))
	case dst.CanUint() && (src.CanInt() || src.CanUint()):
		n := uint64(0)
		if src.CanUint() {
			n = src.Uint()
		} else if src.Int() > 0 {
			n = uint64(src.Int())
		}
		dst.SetUint(min(n, math.MaxUint64>>(64-dst.Type().Bits())))
	}
}

// known holds what pairs found, by both types.
var known sync.Map

// pairs are the numbers of the fields that two structs share.
func pairs(dst, src reflect.Type) [][2]int {
	types := [2]reflect.Type{dst, src}
	if found, ok := known.Load(types); ok {
		return found.([][2]int)
	}
	byKey := map[string]int{}
	for i := range src.NumField() {
		if f := src.Field(i); f.IsExported() {
			byKey[key(f.Name)] = i
		}
	}
	var out [][2]int
	for i := range dst.NumField() {
		if f := dst.Field(i); f.IsExported() {
			if j, ok := byKey[key(f.Name)]; ok {
				out = append(out, [2]int{i, j})
			}
		}
	}
	known.Store(types, out)
	return out
}

// key is what a field is called on both sides.
func key(name string) string {
	for _, suffix := range []string{"Ns", "Bytes", "Json"} {
		name = strings.TrimSuffix(name, suffix)
	}
	switch name {
	case "SandboxId":
		return "id"
	case "IsDefault":
		return "default"
	}
	return strings.ToLower(name)
}

// nameOf is what Go calls the value of an enum: that without the enum's name in front, in lower case. One that is not
// known is "".
func nameOf(e protoreflect.Enum) string {
	v := e.Descriptor().Values().ByNumber(e.Number())
	if v == nil || e.Number() == 0 {
		return ""
	}
	return shortName(v)
}

// numberOf is the value of e's enum that Go calls name; one that is not known is 0, UNSPECIFIED.
func numberOf(e protoreflect.Enum, name string) protoreflect.EnumNumber {
	values := e.Descriptor().Values()
	for i := range values.Len() {
		if v := values.Get(i); v.Number() != 0 && shortName(v) == name {
			return v.Number()
		}
	}
	return 0
}

func shortName(v protoreflect.EnumValueDescriptor) string {
	enum := string(v.Parent().Name())
	name := strings.ToLower(strings.TrimPrefix(string(v.Name()), strings.ToUpper(enum)+"_"))
	if enum == "Isolation" {
		name = strings.ReplaceAll(name, "_", "-")
	}
	return name
}
