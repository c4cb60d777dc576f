// Package redact takes secrets out of what hutch writes down.
package redact

import (
	"bytes"
	"encoding/json"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// Mark is what stands where a secret stood.
const Mark = "(sensitive)"

// MinSecret is the length in bytes below which a secret is not looked for in text: without them hardly a text would
// stay readable.
const MinSecret = 4

// Redactor knows secrets. It may be read concurrently, and not while one is added.
type Redactor struct {
	secrets []string // longest first
	short   []string // looked for only where they may stand alone
}

// New returns a redactor of these secrets.
func New(secrets ...string) *Redactor {
	r := &Redactor{}
	r.Add(secrets...)
	return r
}

// Add takes in further secrets. Empty ones are none.
func (r *Redactor) Add(secrets ...string) {
	for _, s := range secrets {
		switch {
		case s == "":
		case len(s) < MinSecret:
			r.short = append(r.short, s)
		default:
			for _, form := range forms(s) {
				if !slices.Contains(r.secrets, form) {
					r.secrets = append(r.secrets, form)
				}
			}
		}
	}
	sort.SliceStable(r.secrets, func(i, k int) bool { return len(r.secrets[i]) > len(r.secrets[k]) })
}

// forms are the ways in which a text may have a secret: messages quote what they are about, and texts hold JSON, which
// changes some characters.
func forms(s string) []string {
	html, _ := json.Marshal(s) // a string always marshals
	var plain bytes.Buffer
	enc := json.NewEncoder(&plain)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s)
	list := []string{s}
	for _, quoted := range []string{strconv.Quote(s), strconv.QuoteToASCII(s), string(html),
		strings.TrimSuffix(plain.String(), "\n")} {
		list = append(list, quoted[1:len(quoted)-1])
	}
	return list
}

// Empty reports whether there is nothing to look for.
func (r *Redactor) Empty() bool { return len(r.secrets)+len(r.short) == 0 }

// Secrets are the forms that are looked for in text, longest first.
func (r *Redactor) Secrets() []string { return r.secrets }

// Longest is the length in bytes of the longest of them.
func (r *Redactor) Longest() int {
	if len(r.secrets) == 0 {
		return 0
	}
	return len(r.secrets[0])
}

// Text takes the secrets out of s.
func (r *Redactor) Text(s string) string {
	for _, x := range r.secrets {
		s = strings.ReplaceAll(s, x, Mark)
	}
	return s
}

// Tail is Text for the end of a stream, which may begin in the middle of a secret when it is cut.
func (r *Redactor) Tail(s string, cut bool) string {
	if cut {
		best := 0
		for _, x := range r.secrets {
			for n := len(x) - 1; n >= MinSecret && n > best; n-- {
				if strings.HasPrefix(s, x[len(x)-n:]) {
					best = n
				}
			}
		}
		if best > 0 {
			s = Mark + s[best:]
		}
	}
	return r.Text(s)
}

// Argv returns the arguments of a command without secrets: here one is recognised by itself too, however short.
func (r *Redactor) Argv(l []string) []string {
	l = slices.Clone(l)
	for i, s := range l {
		if slices.Contains(r.short, s) {
			l[i] = Mark
		}
	}
	r.Strings(l)
	return l
}

// Strings takes the secrets out of each text of l.
func (r *Redactor) Strings(l []string) {
	for i := range l {
		l[i] = r.Text(l[i])
	}
}

// JSON takes the secrets out of the strings of a JSON text, and leaves all else of it as it is: the names of members
// too.
func (r *Redactor) JSON(b []byte) []byte {
	if len(r.secrets) == 0 {
		return b
	}
	out := make([]byte, 0, len(b))
	for len(b) > 0 {
		i := bytes.IndexByte(b, '"')
		if i < 0 {
			break
		}
		n := literal(b[i:])
		if n == 0 { // it is not JSON
			break
		}
		out = append(out, b[:i]...)
		lit := b[i : i+n]
		b = b[i+n:]
		if rest := bytes.TrimLeft(b, " \t\r\n"); len(rest) == 0 || rest[0] != ':' {
			lit = r.literal(lit)
		}
		out = append(out, lit...)
	}
	return append(out, b...)
}

// literal is the length of the string literal that b begins with, 0 when it does not end.
func literal(b []byte) int {
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return 0
}

func (r *Redactor) literal(lit []byte) []byte {
	var s string
	if json.Unmarshal(lit, &s) != nil {
		return []byte(r.Text(string(lit)))
	}
	clean := r.Text(s)
	if clean == s {
		return lit
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(clean) // a string always encodes
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'})
}

// Value returns v as what it is in JSON, with the secrets taken out of its strings.
func (r *Redactor) Value(v any) any {
	if len(r.secrets) == 0 || v == nil {
		return v
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(v) != nil {
		return v // its writer will say why
	}
	return json.RawMessage(bytes.TrimSuffix(r.JSON(b.Bytes()), []byte{'\n'}))
}
