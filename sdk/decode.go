package sdk

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// decodeConfig fills a fresh value of t's type from the JSON of a backend block,
// defaults included, and validates it. The diagnostics carry paths. A host has
// checked the block against the schema already; this holds against other hosts.
func decodeConfig(t reflect.Type, fields []field, raw json.RawMessage) (any, []Diagnostic) {
	if t == nil {
		return nil, nil
	}
	v := reflect.New(t)
	if len(bytes.TrimSpace(raw)) == 0 {
		raw = json.RawMessage("{}")
	}
	diags := decoder{}.object(raw, v.Elem(), fields, "")
	if len(diags) > 0 {
		return nil, diags
	}
	return v.Interface(), validate(v, "")
}

// decoder turns JSON into Go values along the tags. It has no state; the methods
// hang on it to keep their names together.
type decoder struct{}

func wrong(path, format string, args ...any) []Diagnostic {
	return []Diagnostic{{Severity: SeverityError, Summary: fmt.Sprintf(format, args...), Path: path}}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func (d decoder) object(raw json.RawMessage, v reflect.Value, fields []field, path string) []Diagnostic {
	var in map[string]json.RawMessage
	if err := json.Unmarshal(raw, &in); err != nil {
		return wrong(path, "must be an object")
	}
	var diags []Diagnostic
	for _, f := range fields {
		at := join(path, f.attr.Name)
		value, given := in[f.attr.Name]
		delete(in, f.attr.Name)
		if f.block != nil {
			diags = append(diags, d.block(value, v.FieldByIndex(f.index), f, at)...)
			continue
		}
		if !given || isNull(value) {
			if f.attr.Required {
				diags = append(diags, wrong(at, "%s is required", f.attr.Name)...)
				continue
			}
			if value = f.attr.Default; value == nil {
				continue
			}
		}
		diags = append(diags, d.value(value, v.FieldByIndex(f.index), at)...)
	}
	for name := range in {
		diags = append(diags, wrong(join(path, name), "there is no attribute %q", name)...)
	}
	slices.SortStableFunc(diags, func(a, b Diagnostic) int { return strings.Compare(a.Path, b.Path) })
	return diags
}

func (d decoder) block(raw json.RawMessage, v reflect.Value, f field, path string) []Diagnostic {
	n := 0
	var diags []Diagnostic
	switch f.block.Nesting {
	case NestingList:
		var list []json.RawMessage
		if !isNull(raw) {
			if err := json.Unmarshal(raw, &list); err != nil {
				return wrong(path, "must be a list of blocks")
			}
		}
		n = len(list)
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i, e := range list {
			diags = append(diags, d.object(e, fresh(v.Index(i)), f.fields, path+"["+strconv.Itoa(i)+"]")...)
		}
	case NestingMap:
		var m map[string]json.RawMessage
		if !isNull(raw) {
			if err := json.Unmarshal(raw, &m); err != nil {
				return wrong(path, "must be blocks with one label each")
			}
		}
		n = len(m)
		v.Set(reflect.MakeMap(v.Type()))
		for key, e := range m {
			item := reflect.New(v.Type().Elem()).Elem()
			diags = append(diags, d.object(e, fresh(item), f.fields, path+"["+strconv.Quote(key)+"]")...)
			v.SetMapIndex(reflect.ValueOf(key).Convert(v.Type().Key()), item)
		}
	default:
		if isNull(raw) {
			if v.Kind() == reflect.Struct && f.block.Min == 0 { // an absent block has its attributes' defaults
				return d.defaults(v, f.fields, path)
			}
			break
		}
		n = 1
		diags = d.object(raw, fresh(v), f.fields, path)
	}
	if n < f.block.Min {
		diags = append(diags, wrong(path, "at least %d block(s) %q needed", f.block.Min, f.attr.Name)...)
	}
	if f.block.Max > 0 && n > f.block.Max {
		diags = append(diags, wrong(path, "at most %d block(s) %q allowed", f.block.Max, f.attr.Name)...)
	}
	return diags
}

// defaults fills an absent block that is a plain struct; what it requires is not
// required when the block is not there.
func (d decoder) defaults(v reflect.Value, fields []field, path string) []Diagnostic {
	var diags []Diagnostic
	for _, f := range fields {
		if f.block == nil && f.attr.Default != nil {
			diags = append(diags, d.value(f.attr.Default, v.FieldByIndex(f.index), join(path, f.attr.Name))...)
		}
	}
	return diags
}

// fresh follows a pointer, making what it points to.
func fresh(v reflect.Value) reflect.Value {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		return v.Elem()
	}
	return v
}

func isNull(raw json.RawMessage) bool {
	t := bytes.TrimSpace(raw)
	return len(t) == 0 || string(t) == "null"
}

// value decodes one attribute.
func (d decoder) value(raw json.RawMessage, v reflect.Value, path string) []Diagnostic {
	t := v.Type()
	if t == rawType {
		v.SetBytes(slices.Clone(raw))
		return nil
	}
	if isNull(raw) {
		return nil
	}
	if t.Kind() == reflect.Pointer {
		v.Set(reflect.New(t.Elem()))
		return d.value(raw, v.Elem(), path)
	}
	var text string
	isText := json.Unmarshal(raw, &text) == nil
	switch {
	case t == durationType:
		dur, err := time.ParseDuration(text)
		if !isText || err != nil {
			return wrong(path, "must be a duration with its unit, such as 30s or 2m")
		}
		v.SetInt(int64(dur))
		return nil
	case t == bytesType:
		if !isText {
			text = string(bytes.TrimSpace(raw))
		}
		n, err := ParseBytes(text)
		if err != nil {
			return wrong(path, "%v", err)
		}
		v.SetInt(int64(n))
		return nil
	case v.CanAddr() && v.Addr().Type().Implements(textType):
		if !isText {
			return wrong(path, "must be a string")
		}
		if err := v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text)); err != nil {
			return wrong(path, "%v", err)
		}
		return nil
	}
	switch t.Kind() {
	case reflect.Struct:
		fields, err := fieldsOf(t, nil)
		if err != nil {
			return wrong(path, "%v", err)
		}
		return d.object(raw, v, fields, path)
	case reflect.Slice:
		var list []json.RawMessage
		if err := json.Unmarshal(raw, &list); err != nil {
			return wrong(path, "must be a list")
		}
		v.Set(reflect.MakeSlice(t, len(list), len(list)))
		var diags []Diagnostic
		for i, e := range list {
			diags = append(diags, d.value(e, v.Index(i), path+"["+strconv.Itoa(i)+"]")...)
		}
		return diags
	case reflect.Map:
		var m map[string]json.RawMessage
		if err := json.Unmarshal(raw, &m); err != nil {
			return wrong(path, "must be a map")
		}
		v.Set(reflect.MakeMapWithSize(t, len(m)))
		var diags []Diagnostic
		for key, e := range m {
			item := reflect.New(t.Elem()).Elem()
			diags = append(diags, d.value(e, item, path+"["+strconv.Quote(key)+"]")...)
			v.SetMapIndex(reflect.ValueOf(key).Convert(t.Key()), item)
		}
		return diags
	}
	if err := json.Unmarshal(raw, v.Addr().Interface()); err != nil {
		return wrong(path, "must be a %s", kindName(t))
	}
	return nil
}

func kindName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "bool"
	case reflect.Float32, reflect.Float64, reflect.Interface:
		return "number"
	}
	return "whole number that fits " + t.Kind().String()
}

// validate calls Validate of v and of every struct inside it, innermost first, and
// puts the way to it before the paths it returns.
func validate(v reflect.Value, path string) []Diagnostic {
	var diags []Diagnostic
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return nil
		}
		if v.Kind() == reflect.Interface {
			return nil // whatever was given, of no type of ours
		}
		if v.Elem().Kind() != reflect.Struct {
			return validate(v.Elem(), path)
		}
		for _, sf := range reflect.VisibleFields(v.Elem().Type()) {
			name, _, _ := strings.Cut(sf.Tag.Get("hutch"), ",")
			if name == "" || name == "-" || !sf.IsExported() || hidden(v.Elem().Type(), sf) {
				continue
			}
			f := v.Elem().FieldByIndex(sf.Index)
			if f.Kind() == reflect.Struct {
				f = f.Addr()
			}
			diags = append(diags, validate(f, join(path, name))...)
		}
		if val, ok := v.Interface().(Validator); ok {
			for _, d := range val.Validate() {
				if d.Severity == "" {
					d.Severity = SeverityError
				}
				switch {
				case d.Path == "":
					d.Path = path
				case d.Path[0] == '[':
					d.Path = path + d.Path
				default:
					d.Path = join(path, d.Path)
				}
				diags = append(diags, d)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			e := v.Index(i)
			if e.Kind() == reflect.Struct {
				e = e.Addr()
			}
			diags = append(diags, validate(e, path+"["+strconv.Itoa(i)+"]")...)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			e := v.MapIndex(key)
			if e.Kind() == reflect.Struct {
				p := reflect.New(e.Type())
				p.Elem().Set(e)
				e = p
			}
			diags = append(diags, validate(e, path+"["+strconv.Quote(key.String())+"]")...)
		}
	}
	return diags
}
