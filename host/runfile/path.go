package runfile

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
)

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
