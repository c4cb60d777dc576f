package runfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"slices"
	"strconv"

	"github.com/hutch-run/hutch/host/diag"
)

// Mode is the permission bits of a file, four octal digits in JSON.
type Mode fs.FileMode

// MarshalText implements [encoding.TextMarshaler].
func (m Mode) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%04o", fs.FileMode(m).Perm()), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (m *Mode) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 8, 32)
	if err != nil || n&^0o777 != 0 {
		return fmt.Errorf("invalid mode %s: want octal, such as 0644", quote(string(text)))
	}
	*m = Mode(n)
	return nil
}

// plainDefinition has the fields of a Definition, and no methods.
type plainDefinition Definition

// definitionJSON is the stable JSON form of a Definition.
type definitionJSON struct {
	*plainDefinition
	Range    *diag.Range     `json:"range,omitempty"`
	Backends []string        `json:"backends,omitempty"`
	EnvGiven map[string]bool `json:"env_given,omitempty"` // as origin.given
}

// MarshalJSON renders the definition with every sensitive value replaced by "(sensitive)": fit to be stored and
// printed. The contents of files and the bodies of backend blocks are not in it.
func (d *Definition) MarshalJSON() ([]byte, error) {
	j := definitionJSON{plainDefinition: d.redacted()}
	if r, ok := d.RangeOf(""); ok {
		j.Range = &r
	}
	for _, b := range d.Backends {
		j.Backends = append(j.Backends, b.Name)
	}
	if d.origin != nil {
		j.EnvGiven = d.origin.given
	}
	return unescaped(j)
}

// redacted is a copy without secrets.
func (d *Definition) redacted() *plainDefinition {
	c := *d
	c.Network = d.Network.OrNone()
	if d.origin == nil || len(d.origin.paths) == 0 {
		return (*plainDefinition)(&c)
	}
	c.Command, c.Args, c.Dependencies = slices.Clone(d.Command), slices.Clone(d.Args), slices.Clone(d.Dependencies)
	c.Env = maps.Clone(d.Env)
	c.Stdin, c.Expect = cloned(d.Stdin), cloned(d.Expect)
	if e := c.Expect; e != nil {
		e.Stdout, e.Stderr = e.Stdout.clone(), e.Stderr.clone()
	}
	c.texts(func(path, _ string, set func(string)) {
		if d.origin.isSecret(path) {
			set(Redacted)
		}
	})
	c.Files = slices.Clone(d.Files)
	for i := range c.Files {
		if c.Files[i].Sensitive {
			c.Files[i].Size = 0
		}
	}
	return (*plainDefinition)(&c)
}

func cloned[T any](v *T) *T {
	if v == nil {
		return nil
	}
	return new(*v)
}

func (e *ExpectStream) clone() *ExpectStream {
	if e = cloned(e); e != nil {
		e.Equals = cloned(e.Equals)
		e.Contains, e.Excludes, e.Matches = slices.Clone(e.Contains), slices.Clone(e.Excludes), slices.Clone(e.Matches)
	}
	return e
}

// texts calls fn with every text of the definition that may be sensitive, its path as for [Definition.RangeOf], and
// what gives it another value.
func (d *Definition) texts(fn func(path, text string, set func(string))) {
	one := func(path string, s *string) {
		if s != nil {
			fn(path, *s, func(text string) { *s = text })
		}
	}
	list := func(path string, list []string) {
		for i := range list {
			one(element(path, i), &list[i])
		}
	}
	list("command", d.Command)
	list("args", d.Args)
	list("dependencies", d.Dependencies)
	one("stdin", d.Stdin)
	for _, k := range sortedKeys(d.Env) {
		fn(member("env", k), d.Env[k], func(text string) { d.Env[k] = text })
	}
	if d.Expect == nil {
		return
	}
	for name, e := range d.Expect.streams() {
		one("expect."+name+".equals", e.Equals)
		list("expect."+name+".contains", e.Contains)
		list("expect."+name+".excludes", e.Excludes)
		list("expect."+name+".matches", e.Matches)
	}
}

// streams are the streams of which something is expected, by their names.
func (e *Expect) streams() iter.Seq2[string, *ExpectStream] {
	return func(yield func(string, *ExpectStream) bool) {
		if e.Stdout == nil || yield("stdout", e.Stdout) {
			if e.Stderr != nil {
				yield("stderr", e.Stderr)
			}
		}
	}
}

// unescaped is the JSON of a value for readers: without escapes for HTML.
func unescaped(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSpace(buf.Bytes()), err
}
