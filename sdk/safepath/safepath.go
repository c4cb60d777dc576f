package safepath

import (
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/hutch-run/hutch/sdk/plaintext"
)

// Limits that apply where Rules holds a zero.
const (
	DefaultMaxLen   = 1024 // bytes of a whole path: leaves room for a root below PATH_MAX
	DefaultMaxName  = 255  // bytes of one element: NAME_MAX of every file system in use
	DefaultMaxDepth = 64   // elements of a path
)

// Kind names the rule that a path broke. Kinds are stable: callers may switch on them and print them as codes.
type Kind string

// The rules, in the order in which Check tries them; the last three come from a Set only.
const (
	Empty     Kind = "empty"     // nothing at all
	Absolute  Kind = "absolute"  // begins with a slash
	NUL       Kind = "nul"       // holds a zero byte
	Encoding  Kind = "encoding"  // not UTF-8
	Control   Kind = "control"   // control characters, or ones that change how the rest of a line reads
	Parent    Kind = "parent"    // an element is ".."
	Unclean   Kind = "unclean"   // ".", "//", "./" or a slash at the end
	TooLong   Kind = "too_long"  // the path or one element is over its limit
	TooDeep   Kind = "too_deep"  // more elements than allowed
	Duplicate Kind = "duplicate" // the same path a second time
	Collision Kind = "collision" // the same file where case or Unicode form does not count
	Conflict  Kind = "conflict"  // a file here, a directory there
)

// Error says which path broke which rule.
type Error struct {
	Path   string // as given
	Kind   Kind
	Other  string // the earlier path, for Duplicate, Collision and Conflict
	Reason string // one clause without the path, lower case
	Clean  string // for Unclean: the spelling that would be accepted; else empty
}

// Error quotes the path, so that control characters in it never reach a terminal.
func (e *Error) Error() string { return fmt.Sprintf("path %s: %s", quote(e.Path), e.Reason) }

// Rules are the limits of one use. The zero value is the strictest set with the default limits.
type Rules struct {
	MaxLen   int // bytes of the whole path; 0 means DefaultMaxLen
	MaxName  int // bytes of one element; 0 means DefaultMaxName
	MaxDepth int // elements; 0 means DefaultMaxDepth

	// AnyBytes accepts control characters and invalid UTF-8 (never NUL). For trees that a program made and whose
	// names are carried faithfully, not for names that a person or a model wrote.
	AnyBytes bool
}

// Check applies the default rules to p. The error, if any, is an *Error.
func Check(p string) error { return Rules{}.Check(p) }

// Check reports the first rule that p breaks, as an *Error, or nil.
func (r Rules) Check(p string) error {
	r = r.withDefaults()
	bad := func(k Kind, format string, args ...any) error {
		return &Error{Path: p, Kind: k, Reason: fmt.Sprintf(format, args...)}
	}
	if p == "" {
		return bad(Empty, "is empty; name a file")
	}
	if p[0] == '/' {
		return bad(Absolute, "is absolute; give it relative to its root")
	}
	if i := strings.IndexByte(p, 0); i >= 0 {
		return bad(NUL, "holds a NUL byte at offset %d", i)
	}
	if !r.AnyBytes {
		if !utf8.ValidString(p) {
			return bad(Encoding, "is not valid UTF-8")
		}
		// Joiners stay allowed, because emoji and Indic scripts need them; a Set ignores them when it compares.
		for _, c := range p {
			if !plaintext.Rune(c) {
				return bad(Control, "holds the control character %U", c)
			}
		}
	}
	if len(p) > r.MaxLen {
		return bad(TooLong, "is %d bytes long; at most %d are allowed", len(p), r.MaxLen)
	}
	depth, unclean := 0, false
	for name := range strings.SplitSeq(p, "/") {
		depth++
		switch {
		case name == "..":
			return bad(Parent, "leaves its root by \"..\"")
		case name == "" || name == ".":
			unclean = true
		case len(name) > r.MaxName:
			return bad(TooLong, "has an element of %d bytes; at most %d are allowed", len(name), r.MaxName)
		}
	}
	if unclean {
		e := &Error{Path: p, Kind: Unclean, Reason: "names its root and not a file in it"}
		if c := path.Clean(p); c != "." {
			e.Clean, e.Reason = c, fmt.Sprintf("is not clean; write %s", quote(c))
		}
		return e
	}
	if depth > r.MaxDepth {
		return bad(TooDeep, "is %d levels deep; at most %d are allowed", depth, r.MaxDepth)
	}
	return nil
}

func (r Rules) withDefaults() Rules {
	if r.MaxLen <= 0 {
		r.MaxLen = DefaultMaxLen
	}
	if r.MaxName <= 0 {
		r.MaxName = DefaultMaxName
	}
	if r.MaxDepth <= 0 {
		r.MaxDepth = DefaultMaxDepth
	}
	return r
}

// quote shows at most 120 bytes of a path, quoted and in ASCII where anything else could deceive.
func quote(p string) string {
	const most = 120
	if len(p) <= most {
		return fmt.Sprintf("%q", p)
	}
	return fmt.Sprintf("%q… (%d bytes)", p[:most], len(p))
}
