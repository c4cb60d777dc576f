package ingest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// member is one member of an object. Order is kept, and a name that is there twice is there twice.
type member struct {
	name  string
	value any
}

// object is a JSON object. Arrays are []any, numbers json.Number.
type object []member

// get returns the first member of one of the names.
func (o object) get(names ...string) (any, string, bool) {
	for _, name := range names {
		for _, m := range o {
			if m.name == name {
				return m.value, name, true
			}
		}
	}
	return nil, "", false
}

// found is JSON that was found in a text.
type found struct {
	value any // object or []any; nil when err says what is wrong with it
	err   error
	line  int // of the text where it begins, from 0
	fixed bool
	twice string // a name that an object has twice; "" for none
}

const (
	maxNesting = 64
	maxTries   = 200
)

// findJSON finds the first JSON value in a text that holds files. What can be read only with good will is tried after
// all else: line breaks inside of strings, and commas before a closing bracket. What looks as if it were meant to hold
// files and cannot be read is found too, with the error.
func findJSON(text string) (found, bool) {
	budget := 4*len(text) + 4096 // bytes looked at: a hostile text has a beginning at every byte
	var broken *found
	for at, tries := 0, 0; tries < maxTries && budget > 0; tries++ {
		i := strings.IndexAny(text[at:], "{[")
		if i < 0 {
			break
		}
		at += i
		if broken != nil && at > 0 && text[at-1] != '\n' {
			at++ // a part of what is broken must not be taken for the whole
			continue
		}
		v, n, twice, err := decodeJSON(text[at:])
		budget -= n + 1
		f := found{value: v, err: err, line: strings.Count(text[:at], "\n"), twice: twice}
		switch {
		case err == nil && holdsFiles(v):
			return f, true
		case err == nil:
			at += n
			continue
		case broken == nil && meantAsFiles(text[at:]):
			fixed, whole := mend(text[at:])
			if whole {
				if v, _, twice, err := decodeJSON(fixed); err == nil && holdsFiles(v) {
					f.value, f.err, f.twice, f.fixed = v, nil, twice, true
					return f, true
				}
			} else {
				f.err = io.ErrUnexpectedEOF
			}
			if broken = &f; errors.Is(f.err, io.ErrUnexpectedEOF) {
				return f, true
			}
		}
		at++
	}
	if broken != nil {
		return *broken, true
	}
	return found{}, false
}

// meantAsFiles reports whether broken JSON begins like one of the shapes.
func meantAsFiles(s string) bool {
	s = strings.TrimLeft(strings.TrimLeft(s[1:], " \t\r\n"), "{ \t\r\n")
	name, rest, ok := strings.Cut(strings.TrimPrefix(s, `"`), `"`)
	if !strings.HasPrefix(s, `"`) || !ok || len(name) > 4096 || !strings.HasPrefix(strings.TrimLeft(rest, " \t\r\n"), ":") {
		return false
	}
	switch name {
	case "files", "code", "path", "entrypoint", "language", "dependencies", "content":
		return true
	}
	return pathlike(name)
}

// decodeJSON reads the value at the beginning of a text, and says how many bytes it looked at.
func decodeJSON(text string) (v any, n int, twice string, err error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	r := jsonReader{d: d}
	v, err = r.value(0)
	n = int(d.InputOffset())
	var syntax *json.SyntaxError
	switch {
	case err == nil:
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err, n = io.ErrUnexpectedEOF, len(text)
	case errors.As(err, &syntax):
		n = max(n, min(int(syntax.Offset), len(text)))
	}
	return v, n, r.twice, err
}

type jsonReader struct {
	d     *json.Decoder
	twice string
}

func (r *jsonReader) value(depth int) (any, error) {
	if depth > maxNesting {
		return nil, fmt.Errorf("the JSON is nested deeper than %d levels", maxNesting)
	}
	t, err := r.d.Token()
	if err != nil {
		return nil, err
	}
	switch t {
	case json.Delim('{'):
		o, seen := object{}, map[string]bool{}
		for r.d.More() {
			name, err := r.d.Token()
			if err != nil {
				return nil, err
			}
			key, _ := name.(string)
			if seen[key] && r.twice == "" {
				r.twice = key
			}
			seen[key] = true
			v, err := r.value(depth + 1)
			if err != nil {
				return nil, err
			}
			o = append(o, member{key, v})
		}
		_, err := r.d.Token()
		return o, err
	case json.Delim('['):
		a := []any{}
		for r.d.More() {
			v, err := r.value(depth + 1)
			if err != nil {
				return nil, err
			}
			a = append(a, v)
		}
		_, err := r.d.Token()
		return a, err
	}
	return t, nil
}

// mend escapes line breaks and tabs inside of strings and takes out commas before closing brackets, up to the end of
// the value that s begins with. whole is false when s has no such end.
func mend(s string) (out string, whole bool) {
	b := make([]byte, 0, len(s)+16)
	depth, inString, comma := 0, false, -1
	for i := 0; i < len(s); i++ {
		c := s[i]
		if inString {
			switch {
			case c == '\\' && i+1 < len(s):
				b = append(b, c)
				i++
				b = append(b, s[i])
				continue
			case c == '"':
				inString = false
			case c == '\n':
				b = append(b, `\n`...)
				continue
			case c == '\t':
				b = append(b, `\t`...)
				continue
			case c == '\r':
				b = append(b, `\r`...)
				continue
			}
			b = append(b, c)
			continue
		}
		switch c {
		case '"':
			inString = true
		case ',':
			comma = len(b)
			b = append(b, c)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if comma >= 0 {
				b = b[:comma] // only white space stands between
			}
			depth--
		case ' ', '\t', '\r', '\n':
			b = append(b, c)
			continue
		}
		comma = -1
		b = append(b, c)
		if depth == 0 {
			return string(b), true
		}
	}
	return string(b), false
}
