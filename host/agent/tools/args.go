package tools

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/host/units"
)

// MaxArguments is how many bytes the arguments of one call may have.
const MaxArguments = 4 << 20

// Decode reads the arguments of a call, as a model wrote them, into a struct whose schema is given. The error says what
// is wrong with them.
func Decode(args string, schema json.RawMessage, in any) error {
	if len(args) > MaxArguments {
		return fmt.Errorf("the arguments have %d bytes, at most %s are allowed; do it in several steps", len(args), units.FormatSize(MaxArguments))
	}
	if strings.TrimSpace(args) == "" {
		args = "{}" // of a tool that needs none
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal([]byte(args), &given); err != nil {
		return badJSON(err)
	}
	if given == nil {
		return errors.New("the arguments are null, and must be a JSON object")
	}
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	}
	if err := json.Unmarshal(schema, &s); err != nil {
		return fmt.Errorf("the schema of the tool is damaged: %w", err)
	}
	known := slices.Sorted(maps.Keys(s.Properties))
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains(known, name) {
			return fmt.Errorf("there is no argument %q; the arguments are %s", Clip(name), strings.Join(known, ", "))
		}
	}
	for _, name := range s.Required {
		if v, ok := given[name]; !ok || string(v) == "null" {
			return fmt.Errorf("the argument %q is missing", name)
		}
	}
	dec := json.NewDecoder(strings.NewReader(args))
	dec.DisallowUnknownFields()
	if err := dec.Decode(in); err != nil {
		return badJSON(err)
	}
	return nil
}

// badJSON says what is wrong in words for a model.
func badJSON(err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("the arguments are not valid JSON: %w, at byte %d", syntax, syntax.Offset)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return errors.New("the arguments are not valid JSON: they end too early")
	case errors.As(err, &kind) && kind.Field == "":
		return fmt.Errorf("the arguments must be a JSON object, not %s", article(kind.Value))
	case errors.As(err, &kind):
		return fmt.Errorf("the argument %q must be %s, not %s", kind.Field, wanted(kind.Type), article(kind.Value))
	}
	return fmt.Errorf("the arguments cannot be used: %s", bytes.TrimPrefix([]byte(err.Error()), []byte("json: ")))
}

func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Slice:
		return "a list"
	}
	return "an object"
}

func article(word string) string {
	if word != "" && strings.ContainsAny(word[:1], "aeio") {
		return "an " + word
	}
	return "a " + word
}
