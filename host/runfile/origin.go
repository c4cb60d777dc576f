package runfile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/hutch-run/hutch/host/diag"
	"github.com/hutch-run/hutch/host/diag/hcldiag"
)

// Redacted stands wherever something sensitive was left out.
const Redacted = "(sensitive)"

// shortSecret is the length below which a secret is not replaced in free text.
const shortSecret = 4

// origin is where a definition came from: the places of its values, and which of them are sensitive. The methods work
// on nil, for definitions that were made from flags.
type origin struct {
	ranges  ranges
	sources sources
	context string          // run "report"
	paths   map[string]bool // keys of paths whose values are sensitive
	secrets map[string]bool // the strings themselves, and every sensitive variable
	used    map[string]bool // of those, what the block itself has
	// variables of the environment that were given for this run alone, and whether texts are searched for their values
	given map[string]bool
}

// MinPassed is the length in bytes below which a value that is passed on from the caller's environment is not looked
// for in texts: CI=true would take every "true" out of the record.
const MinPassed = 8

// HideEnv leaves the values of variables of the environment out of everything that is recorded. A value in passed came
// from the caller's environment: it is a secret like a sensitive variable, so that texts such as what the program
// prints are recorded without it, unless it is shorter than [MinPassed].
func (d *Definition) HideEnv(names, passed []string) {
	o := &origin{}
	if d.origin != nil { // copies of d share it
		*o = *d.origin
		o.paths, o.secrets, o.used, o.given = maps.Clone(o.paths), maps.Clone(o.secrets), maps.Clone(o.used),
			maps.Clone(o.given)
	}
	for _, name := range names {
		if o.given == nil {
			o.given = map[string]bool{}
		}
		path, value := member("env", name), d.Env[name]
		if o.given[name] = slices.Contains(passed, name) && len(value) >= MinPassed; !o.given[name] {
			value = ""
		}
		o.secret(path, value)
	}
	d.origin = o
}

// HiddenEnv are the variables of the environment whose values are not recorded, in order.
func (d *Definition) HiddenEnv() []string {
	return slices.DeleteFunc(sortedKeys(d.Env), func(name string) bool { return !d.origin.isSecret(member("env", name)) })
}

// secret remembers that the value at a path is sensitive.
func (o *origin) secret(path, value string) {
	if parts, err := parsePath(path); err == nil {
		add(&o.paths, pathKey(parts))
	}
	o.secretString(value)
}

func (o *origin) secretString(s string) {
	if s != "" {
		add(&o.secrets, s)
		add(&o.used, s)
	}
}

func add(set *map[string]bool, s string) {
	if *set == nil {
		*set = map[string]bool{}
	}
	(*set)[s] = true
}

// forget drops the secrets that a text is made of, but for those that the block has besides.
func (o *origin) forget(text string) {
	var used strings.Builder
	for s := range o.used {
		used.WriteString(s + "\x00")
	}
	maps.DeleteFunc(o.secrets, func(s string, _ bool) bool {
		return strings.Contains(text, s) &&
			!strings.Contains(used.String(), s)
	})
}

// secretValue remembers every string and number inside a sensitive value.
func (o *origin) secretValue(v cty.Value) {
	if v == cty.NilVal {
		return
	}
	v, _ = v.UnmarkDeep()
	_ = cty.Walk(v, func(_ cty.Path, v cty.Value) (bool, error) { // it gives the error of the function, which has none
		switch {
		case v.IsNull() || !v.IsKnown():
			return false, nil
		case v.Type() == cty.String:
			o.secretString(v.AsString())
		case v.Type() == cty.Number:
			o.secretString(v.AsBigFloat().Text('f', -1))
		}
		return true, nil
	})
}

// markedStrings remembers every string of the sensitive parts of a value.
func (o *origin) markedStrings(v cty.Value) {
	plain, marks := v.UnmarkDeepWithPaths()
	for _, m := range marks {
		part, err := m.Path.Apply(plain)
		if err != nil {
			part = plain // rather all of it than nothing
		}
		o.secretValue(part)
	}
}

// isSecret reports whether the value at a path, or what holds it, is sensitive.
func (o *origin) isSecret(path string) bool {
	if o == nil || len(o.paths) == 0 {
		return false
	}
	parts, err := parsePath(path)
	if err != nil {
		return false
	}
	for n := len(parts); n > 0; n-- {
		if o.paths[pathKey(parts[:n])] {
			return true
		}
	}
	return false
}

// rangeAt is the range of a path, or another one.
func (o *origin) rangeAt(path string, other hcl.Range) hcl.Range {
	if parts, err := parsePath(path); err == nil {
		if r, exact, _ := o.ranges.find(parts); exact {
			return r
		}
	}
	return other
}

// Secrets returns every string that came from something sensitive and became part of this run, longest first, without
// duplicates and empty strings. Secrets of backend blocks are in BackendConfig.
func (d *Definition) Secrets() []string {
	return d.secrets(func(string) bool { return true })
}

// OwnSecrets returns those of Secrets that are in what the run itself has: not the variables that nothing, or a
// backend's block alone, uses.
func (d *Definition) OwnSecrets() []string {
	if d.origin == nil {
		return nil
	}
	var own strings.Builder
	for s := range d.origin.used {
		own.WriteString(s + "\x00")
	}
	return d.secrets(func(s string) bool { return strings.Contains(own.String(), s) })
}

func (d *Definition) secrets(want func(string) bool) []string {
	if d.origin == nil {
		return nil
	}
	all := make([]string, 0, len(d.origin.secrets))
	for s := range d.origin.secrets {
		if want(s) {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	return all
}

// Redact replaces every secret of at least four bytes in s by (sensitive). Shorter ones are left, because without
// them hardly a text would stay readable.
func (d *Definition) Redact(s string) string {
	for _, secret := range d.Secrets() {
		if len(secret) < shortSecret {
			break
		}
		s = strings.ReplaceAll(s, secret, Redacted)
	}
	return s
}

// RangeOf says where a value was set. Paths are those of the run block: "limits.memory", "entrypoint", "args[1]",
// `env["A"]`, "workspace.source", "backend[0]", "expect.stdout.contains[0]"; "" is the header of the run block. An
// element that has no place of its own gives that of what holds it. It is false when nothing of it was written in a
// file.
func (d *Definition) RangeOf(path string) (diag.Range, bool) {
	if _, given := d.Given[path]; given || d.origin == nil {
		return diag.Range{}, false
	}
	parts, err := parsePath(path)
	if err != nil {
		parts = nil
	}
	r, _, ok := d.origin.ranges.find(parts)
	if ok && len(parts) > 0 {
		if header := d.origin.ranges[""]; r == header {
			return diag.Range{}, false // nothing but the run block holds it: it was not written
		}
	}
	return hcldiag.Range(r), ok
}

// Diagnose makes an error about a value of the run, at the line where it was set, or at the run block when it was not
// set in the file. One that a flag gave has the flag as its path, one from elsewhere has that as its context. Paths are as
// for RangeOf.
func (d *Definition) Diagnose(path, summary, detail, fix string) diag.Diagnostic {
	out := diag.Diagnostic{Severity: diag.Error, Summary: summary, Detail: detail, Fix: fix, Path: path}
	if from, given := d.Given[path]; given {
		if strings.HasPrefix(from, "--") {
			out.Path = from
		} else {
			out.Path, out.Context = "", from
		}
		return out
	}
	if d.origin == nil {
		return out
	}
	parts, err := parsePath(path)
	if err != nil {
		return out
	}
	r, exact, ok := d.origin.ranges.find(parts)
	if !ok {
		return out
	}
	out.Context = d.origin.context
	if exact {
		out.Path = ""
	}
	secret := d.origin.isSecret(path)
	out = d.origin.sources.at(out, r)
	if secret {
		out.Snippet = nil
	}
	return out
}

// Values have paths: names joined by dots, elements of lists as [0], elements of maps as ["key"]. The parts of a path
// are kept without their notation, so that env.HOME and env["HOME"] are the same place.

const (
	maxPathLen   = 4096 // bytes of a path that a backend sends
	maxPathParts = 64
)

// parsePath splits a path into its parts.
func parsePath(p string) ([]string, error) {
	if len(p) > maxPathLen {
		return nil, fmt.Errorf("the path is %d bytes long; at most %d are allowed", len(p), maxPathLen)
	}
	var parts []string
	rest := p
	for rest != "" {
		if len(parts) == maxPathParts {
			return nil, fmt.Errorf("the path has more than %d parts", maxPathParts)
		}
		at := len(p) - len(rest)
		if rest[0] == '[' {
			key, tail, err := parseIndex(rest[1:])
			if err != nil {
				return nil, fmt.Errorf("%w at offset %d", err, at)
			}
			parts, rest = append(parts, key), tail
			continue
		}
		if len(parts) > 0 {
			if rest[0] != '.' {
				return nil, fmt.Errorf("a dot or bracket is missing at offset %d", at)
			}
			rest = rest[1:]
		}
		end := strings.IndexAny(rest, ".[")
		if end < 0 {
			end = len(rest)
		}
		if end == 0 {
			return nil, fmt.Errorf("a name is missing at offset %d", len(p)-len(rest))
		}
		parts, rest = append(parts, rest[:end]), rest[end:]
	}
	return parts, nil
}

// parseIndex reads 0] or "key"] and returns what follows.
func parseIndex(s string) (key, tail string, err error) {
	if strings.HasPrefix(s, `"`) {
		quoted, err := strconv.QuotedPrefix(s)
		if err != nil {
			return "", "", fmt.Errorf("a quoted key is not closed")
		}
		key, err = strconv.Unquote(quoted)
		if err != nil {
			return "", "", fmt.Errorf("a quoted key is malformed")
		}
		if tail, ok := strings.CutPrefix(s[len(quoted):], "]"); ok {
			return key, tail, nil
		}
		return "", "", fmt.Errorf("a bracket is not closed")
	}
	end := strings.IndexByte(s, ']')
	if end < 0 {
		return "", "", fmt.Errorf("a bracket is not closed")
	}
	if end == 0 || strings.Trim(s[:end], "0123456789") != "" {
		return "", "", fmt.Errorf("an index is neither a number nor a quoted key")
	}
	return s[:end], s[end+1:], nil
}

// pathKey joins the parts of a path to a key that no other path has.
func pathKey(parts []string) string { return strings.Join(parts, "\x00") }

// element is the path of one element of a list, member that of one of a map.
func element(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

func member(path, key string) string { return fmt.Sprintf("%s[%s]", path, strconv.Quote(key)) }

// child is the path of an argument or block inside a block.
func child(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// ranges knows where each value was written. The zero value is empty and ready.
type ranges map[string]hcl.Range

// set records a range for a path that this package made.
func (r ranges) set(path string, rng hcl.Range) {
	if parts, err := parsePath(path); err == nil {
		r[pathKey(parts)] = rng
	}
}

// expr records the range of an expression, and of the elements that can be seen in it.
func (r ranges) expr(path string, e hcl.Expression) {
	parts, err := parsePath(path)
	if err != nil {
		return
	}
	r.exprParts(parts, e)
}

func (r ranges) exprParts(parts []string, e hcl.Expression) {
	r[pathKey(parts)] = e.Range()
	if len(parts) >= maxPathParts {
		return
	}
	if list, diags := hcl.ExprList(e); !diags.HasErrors() {
		for i, e := range list {
			r.exprParts(append(parts[:len(parts):len(parts)], strconv.Itoa(i)), e)
		}
		return
	}
	if pairs, diags := hcl.ExprMap(e); !diags.HasErrors() {
		for _, kv := range pairs {
			if key, ok := literalKey(kv.Key); ok {
				r.exprParts(append(parts[:len(parts):len(parts)], key), kv.Value)
			}
		}
	}
}

// literalKey is the key of an object constructor when it needs no evaluation.
func literalKey(e hcl.Expression) (string, bool) {
	v, diags := e.Value(nil)
	if diags.HasErrors() || v == cty.NilVal || !v.IsKnown() || v.IsNull() || v.IsMarked() || v.Type() != cty.String {
		return "", false
	}
	return v.AsString(), true
}

// find returns the range of a path, or of the nearest thing that holds it. exact says which.
func (r ranges) find(parts []string) (rng hcl.Range, exact, ok bool) {
	for n := len(parts); n >= 0; n-- {
		if rng, ok := r[pathKey(parts[:n])]; ok {
			return rng, n == len(parts), true
		}
	}
	return hcl.Range{}, false, false
}
