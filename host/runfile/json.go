package runfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
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
	c := plainDefinition(*d)
	c.Network = d.Network.OrNone()
	if d.origin == nil || len(d.origin.paths) == 0 {
		return &c
	}
	c.Command, c.Args = d.shown("command", d.Command), d.shown("args", d.Args)
	c.Dependencies, c.Stdin = d.shown("dependencies", d.Dependencies), d.shownText("stdin", d.Stdin)
	c.Env = maps.Clone(d.Env)
	for _, k := range d.HiddenEnv() {
		c.Env[k] = Redacted
	}
	c.Files = slices.Clone(d.Files)
	for i := range c.Files {
		if c.Files[i].Sensitive {
			c.Files[i].Size = 0
		}
	}
	if d.Expect != nil {
		e := *d.Expect
		e.Stdout, e.Stderr = d.shownStream("expect.stdout", e.Stdout), d.shownStream("expect.stderr", e.Stderr)
		c.Expect = &e
	}
	return &c
}

// shown is a list with its secrets replaced.
func (d *Definition) shown(path string, list []string) []string {
	out := slices.Clone(list)
	for i := range out {
		if d.origin.isSecret(element(path, i)) {
			out[i] = Redacted
		}
	}
	return out
}

func (d *Definition) shownText(path string, s *string) *string {
	if s != nil && d.origin.isSecret(path) {
		return new(Redacted)
	}
	return s
}

func (d *Definition) shownStream(path string, e *ExpectStream) *ExpectStream {
	if e == nil {
		return nil
	}
	return &ExpectStream{Equals: d.shownText(path+".equals", e.Equals), Empty: e.Empty,
		Contains: d.shown(path+".contains", e.Contains), Excludes: d.shown(path+".excludes", e.Excludes),
		Matches: d.shown(path+".matches", e.Matches)}
}

// unescaped is the JSON of a value for readers: without escapes for HTML.
func unescaped(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSpace(buf.Bytes()), err
}
