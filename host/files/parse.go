package files

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// ParseEdits reads edits from JSON: one object with old, new and perhaps all, or a list of them.
func ParseEdits(b []byte) ([]Edit, error) {
	bad := func(format string, args ...any) error {
		e := refuse("", ReasonRequest, format, args...)
		e.Hint = `edits are JSON: {"old": "…", "new": "…"}, or a list of such objects`
		return e
	}
	b = bytes.TrimSpace(b)
	if len(b) == 0 {
		return nil, bad("there are no edits")
	}
	if b[0] != '[' {
		b = append(append([]byte{'['}, b...), ']')
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	var raw []struct {
		Old *string `json:"old"`
		New *string `json:"new"`
		All bool    `json:"all"`
	}
	if err := d.Decode(&raw); err != nil {
		return nil, bad("the edits cannot be read: %v", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, bad("something follows on the edits")
	}
	if len(raw) == 0 {
		return nil, bad("there are no edits")
	}
	out := make([]Edit, len(raw))
	for i, r := range raw {
		if r.Old == nil || r.New == nil {
			return nil, bad("%s needs both old and new", fmt.Sprintf("edit %d of %d", i+1, len(raw)))
		}
		out[i] = Edit{*r.Old, *r.New, r.All}
	}
	return out, nil
}
