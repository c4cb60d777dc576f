package sdk

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Schema says what a backend block may hold. The host checks the block against
// it, so that a wrong attribute is reported at its own line of the run file.
type Schema struct {
	Attributes []Attribute `json:"attributes,omitempty"`
	Blocks     []Block     `json:"blocks,omitempty"`
}

// Attribute is one NAME = VALUE of a block.
type Attribute struct {
	Name string `json:"name"`
	// Type is an HCL type constraint: string, number, bool, list(T), set(T),
	// map(T), object({name = T, other = optional(T)}), any.
	Type       string          `json:"type"`
	Required   bool            `json:"required,omitempty"`
	Default    json.RawMessage `json:"default,omitempty"`    // used when the attribute is absent; nil means the type's null
	Doc        string          `json:"doc,omitempty"`        // one or two sentences, units and bounds included
	Sensitive  bool            `json:"sensitive,omitempty"`  // never printed, never stored
	Deprecated string          `json:"deprecated,omitempty"` // what to use instead; empty while it is not deprecated
}

// Block is a nested block.
type Block struct {
	Name    string  `json:"name"`
	Nesting Nesting `json:"nesting"`
	Min     int     `json:"min,omitempty"` // fewest, for NestingList and NestingMap
	Max     int     `json:"max,omitempty"` // most; 0 means any number
	Doc     string  `json:"doc,omitempty"`
	Schema  Schema  `json:"schema"`
}

// Nesting says how often a block may stand and how its values reach the backend.
type Nesting string

// The ways of nesting.
const (
	NestingSingle Nesting = "single" // at most one: an object, or null
	NestingList   Nesting = "list"   // a list of objects in the order of the file
	NestingMap    Nesting = "map"    // one label each: an object keyed by label
)

// SchemaOf derives the schema of a backend block from a struct, or a pointer to
// one; nil gives the empty schema. Every exported field needs a tag:
//
//	type config struct {
//		Image   string            `hutch:"image,required" doc:"image to run"`
//		Boot    time.Duration     `hutch:"boot" default:"30s" doc:"how long to wait"`
//		Memory  sdk.Bytes         `hutch:"memory" doc:"of the machine"`
//		Env     map[string]string `hutch:"env" doc:"variables of every command"`
//		Token   string            `hutch:"token,sensitive" doc:"of the registry"`
//		Old     *bool             `hutch:"old" deprecated:"use image" doc:"…"`
//		Mounts  []mount           `hutch:"mount,block,max=8" doc:"…"`
//		Volumes map[string]volume `hutch:"volume,block" doc:"one label each"`
//		Retry   *retry            `hutch:"retry,block" doc:"at most one"`
//		cache   string            // not exported: not part of the schema
//		Done    bool              `hutch:"-"`
//	}
//
// Types: string, bool, all integers and floats, [Bytes], [time.Duration] (as Go
// writes durations), anything with UnmarshalText, [json.RawMessage] and any (for
// whatever is given), slices, maps with string keys, structs (an object, or with
// ",block" a nested block), and pointers to all of these, which are nil when the
// attribute is absent. Fields of an embedded struct count as the struct's own.
//
// The default is written as in JSON; strings, durations and sizes need no quotes.
// Min and max count the blocks of a slice or a map.
func SchemaOf(config any) (Schema, error) {
	if config == nil {
		return Schema{}, nil
	}
	t := reflect.TypeOf(config)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return Schema{}, fmt.Errorf("the configuration of a backend is a struct, not %s", t)
	}
	fields, err := fieldsOf(t, nil)
	if err != nil {
		return Schema{}, err
	}
	return schemaOf(fields), nil
}

// field is one tagged field of a configuration struct.
type field struct {
	attr   Attribute
	block  *Block  // of a nested block; attr holds only the name then
	fields []field // of that block
	index  []int
	typ    reflect.Type
}

var (
	textType     = reflect.TypeFor[encoding.TextUnmarshaler]()
	durationType = reflect.TypeFor[time.Duration]()
	bytesType    = reflect.TypeFor[Bytes]()
	rawType      = reflect.TypeFor[json.RawMessage]()
)

func schemaOf(fields []field) Schema {
	var s Schema
	for _, f := range fields {
		if f.block != nil {
			s.Blocks = append(s.Blocks, *f.block)
		} else {
			s.Attributes = append(s.Attributes, f.attr)
		}
	}
	return s
}

// fieldsOf reads the tags of struct t. outer holds the structs that t lies in: a
// struct inside itself would never end.
func fieldsOf(t reflect.Type, outer []reflect.Type) ([]field, error) {
	for _, o := range outer {
		if o == t {
			return nil, fmt.Errorf("%s holds itself, which a run file cannot write down", t)
		}
	}
	outer = append(outer[:len(outer):len(outer)], t)
	var out []field
	seen := map[string]string{}
	for _, sf := range reflect.VisibleFields(t) {
		where := t.String() + "." + sf.Name
		tag, tagged := sf.Tag.Lookup("hutch")
		switch {
		case !sf.IsExported() && tagged:
			return nil, fmt.Errorf("%s has a hutch tag but is not exported", where)
		case !sf.IsExported(), tag == "-", sf.Anonymous && !tagged:
			continue
		case !tagged:
			return nil, fmt.Errorf("%s has no hutch tag: give it one, or `hutch:\"-\"`", where)
		case hidden(t, sf):
			continue
		}
		f, err := fieldOf(sf, tag, outer)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
		if other, ok := seen[f.attr.Name]; ok {
			return nil, fmt.Errorf("%s: the name %q is taken by %s", where, f.attr.Name, other)
		}
		seen[f.attr.Name] = sf.Name
		out = append(out, f)
	}
	return out, nil
}

// hidden reports whether sf came in through an embedded pointer, which may be nil.
func hidden(t reflect.Type, sf reflect.StructField) bool {
	for i := 1; i < len(sf.Index); i++ {
		if t.FieldByIndex(sf.Index[:i]).Type.Kind() == reflect.Pointer {
			return true
		}
	}
	return false
}

func fieldOf(sf reflect.StructField, tag string, outer []reflect.Type) (field, error) {
	name, rest, _ := strings.Cut(tag, ",")
	f := field{index: sf.Index, typ: sf.Type, attr: Attribute{Name: name, Doc: sf.Tag.Get("doc"),
		Deprecated: sf.Tag.Get("deprecated")}}
	if !isName(name, 64, "_") {
		return f, fmt.Errorf("%q is no name for an attribute: a-z, 0-9 and _, a letter first", name)
	}
	isBlock, low, high := false, 0, 0
	for _, o := range strings.Split(rest, ",") {
		key, value, _ := strings.Cut(o, "=")
		var err error
		switch key {
		case "":
		case "required":
			f.attr.Required = true
		case "sensitive":
			f.attr.Sensitive = true
		case "block":
			isBlock = true
		case "min":
			low, err = strconv.Atoi(value)
		case "max":
			high, err = strconv.Atoi(value)
		default:
			return f, fmt.Errorf("the tag option %q is not one of required, sensitive, block, min=N, max=N", o)
		}
		if err != nil || low < 0 || high < 0 || (high > 0 && high < low) {
			return f, fmt.Errorf("the tag option %q needs a number, and min at most max", o)
		}
	}
	def, hasDefault := sf.Tag.Lookup("default")
	if isBlock {
		if hasDefault || f.attr.Sensitive || f.attr.Deprecated != "" {
			return f, fmt.Errorf("a block has no default, and is neither sensitive nor deprecated; its attributes may be")
		}
		return blockOf(f, low, high, outer)
	}
	if low != 0 || high != 0 {
		return f, fmt.Errorf("min and max are for blocks")
	}
	var err error
	if f.attr.Type, err = typeOf(sf.Type, outer); err != nil {
		return f, err
	}
	if hasDefault {
		if f.attr.Required {
			return f, fmt.Errorf("a required attribute needs no default")
		}
		if f.attr.Default, err = defaultOf(def, f.attr.Type); err != nil {
			return f, err
		}
		if d := (decoder{}).value(f.attr.Default, reflect.New(sf.Type).Elem(), name); len(d) > 0 {
			return f, fmt.Errorf("the default %q does not fit: %s", def, d[0].Summary)
		}
	}
	return f, nil
}

func blockOf(f field, low, high int, outer []reflect.Type) (field, error) {
	b := &Block{Name: f.attr.Name, Doc: f.attr.Doc, Min: low, Max: high}
	t := f.typ
	switch {
	case t.Kind() == reflect.Slice:
		b.Nesting, t = NestingList, t.Elem()
	case t.Kind() == reflect.Map && t.Key().Kind() == reflect.String:
		b.Nesting, t = NestingMap, t.Elem()
	default:
		b.Nesting = NestingSingle
		if low != 0 || high != 0 {
			return f, fmt.Errorf("a block that stands at most once has neither min nor max; use required")
		}
		b.Max = 1
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return f, fmt.Errorf("a block is a struct, a pointer to one, or a slice or map of these, not %s", f.typ)
	}
	if f.attr.Required {
		b.Min = max(b.Min, 1)
	}
	var err error
	if f.fields, err = fieldsOf(t, outer); err != nil {
		return f, err
	}
	b.Schema = schemaOf(f.fields)
	f.block = b
	return f, nil
}

// typeOf returns the HCL type constraint for a Go type.
func typeOf(t reflect.Type, outer []reflect.Type) (string, error) {
	switch {
	case t == rawType || t.Kind() == reflect.Interface && t.NumMethod() == 0:
		return "any", nil
	case t == durationType, t == bytesType, t.Implements(textType), reflect.PointerTo(t).Implements(textType):
		return "string", nil
	}
	switch t.Kind() {
	case reflect.Pointer:
		return typeOf(t.Elem(), outer)
	case reflect.String:
		return "string", nil
	case reflect.Bool:
		return "bool", nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64,
		reflect.Float32, reflect.Float64:
		return "number", nil
	case reflect.Slice:
		e, err := typeOf(t.Elem(), outer)
		return "list(" + e + ")", err
	case reflect.Map:
		if t.Key().Kind() != reflect.String {
			return "", fmt.Errorf("a map needs string keys, not %s", t.Key())
		}
		e, err := typeOf(t.Elem(), outer)
		return "map(" + e + ")", err
	case reflect.Struct:
		return objectType(t, outer)
	}
	return "", fmt.Errorf("the type %s cannot stand in a run file", t)
}

func objectType(t reflect.Type, outer []reflect.Type) (string, error) {
	fields, err := fieldsOf(t, outer)
	if err != nil {
		return "", err
	}
	var parts []string
	for _, f := range fields {
		if f.block != nil {
			return "", fmt.Errorf("%s: an object cannot hold the block %q", t, f.attr.Name)
		}
		typ := f.attr.Type
		if !f.attr.Required {
			typ = "optional(" + typ + ")"
		}
		parts = append(parts, f.attr.Name+" = "+typ)
	}
	return "object({" + strings.Join(parts, ", ") + "})", nil
}

// defaultOf turns the text of a default tag into JSON.
func defaultOf(text, typ string) (json.RawMessage, error) {
	if typ == "string" {
		return json.Marshal(text)
	}
	if !json.Valid([]byte(text)) {
		return nil, fmt.Errorf("the default %q is not JSON, which type %s needs", text, typ)
	}
	return json.RawMessage(text), nil
}
