package files

import (
	"bytes"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"
)

// matcher finds the lines that match an expression. Reading RE2 byte by byte is slow beside looking for a plain text,
// so where every match must contain one of a few texts, those are looked for first.
type matcher struct {
	line  *regexp.Regexp // for one line, without its end
	whole *regexp.Regexp // for a text of many lines; nil when it would not find the same lines
	needs []needle       // every match contains one of them; none when nothing is known
	plain bool           // a line that contains the needle matches
}

// place is a line: where it begins, where it ends (after its newline), and its number from 1.
type place struct{ start, end, number int }

func newMatcher(r GrepRequest) (*matcher, error) {
	expr := r.Pattern
	if expr == "" {
		return nil, refuse("", ReasonRequest, "the pattern is empty")
	}
	if r.Fixed {
		if strings.ContainsRune(expr, '\n') {
			return nil, refuse("", ReasonRequest, "the text has several lines, and lines are searched one at a time")
		}
		expr = regexp.QuoteMeta(expr)
	}
	if r.IgnoreCase {
		expr = "(?i:" + expr + ")"
	}
	parsed, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		e := &Error{Reason: ReasonRequest, Detail: fmt.Sprintf("the pattern is no regular expression: %v", err), Err: err}
		e.Hint = "the syntax is RE2's, without backreferences and lookaround; a plain text can be searched for as such"
		return nil, e
	}
	m := &matcher{}
	if m.line, err = regexp.Compile(expr); err != nil {
		return nil, &Error{Reason: ReasonRequest, Detail: fmt.Sprintf("the pattern is no regular expression: %v", err), Err: err}
	}
	// With (?m) the ends of lines are what ^ and $ mean in a line alone. \A and \z have no such form.
	if many, err := syntax.Parse("(?m:"+expr+")", syntax.Perl); err == nil && !hasTextAnchor(many) {
		if m.whole, err = regexp.Compile("(?m:" + expr + ")"); err != nil {
			m.whole = nil
		}
	}
	re := parsed.Simplify()
	m.needs = required(re)
	m.plain = re.Op == syntax.OpLiteral && len(m.needs) == 1 && m.needs[0].text == string(re.Rune) && !strings.Contains(m.needs[0].text, "\n")
	return m, nil
}

// hasTextAnchor reports whether the expression says \A or \z.
func hasTextAnchor(re *syntax.Regexp) bool {
	return re.Op == syntax.OpBeginText || re.Op == syntax.OpEndText || slices.ContainsFunc(re.Sub, hasTextAnchor)
}

// lines returns the first most lines of b that match.
func (m *matcher) lines(b []byte, most int) []place {
	if len(m.needs) > 0 {
		return m.byNeedle(b, most)
	}
	var out []place
	c := cursor{b: b, number: 1}
	for c.start < len(b) && len(out) < most {
		if m.whole != nil {
			// The leftmost match begins in the first line that matches, or before it, where one spans lines.
			loc := m.whole.FindIndex(b[c.start:])
			if loc == nil {
				return out
			}
			if c.start+loc[0] == len(b) && b[len(b)-1] == '\n' {
				return out // an empty match after the last line
			}
			c.to(c.start + loc[0])
		}
		p := c.line()
		if m.line.Match(trimEnd(b[p.start:p.end])) {
			out = append(out, p)
		}
		c.next(p)
	}
	return out
}

// byNeedle looks at the lines that hold one of the needles.
func (m *matcher) byNeedle(b []byte, most int) []place {
	var out []place
	c := cursor{b: b, number: 1}
	var at [maxNeedles]int // where each needle is next; len(b) for nowhere
	for i := range m.needs {
		at[i] = -1
	}
	for len(out) < most {
		first := len(b)
		for i := range m.needs {
			if at[i] < c.start {
				if at[i] = m.needs[i].index(b, c.start); at[i] < 0 {
					at[i] = len(b)
				}
			}
			first = min(first, at[i])
		}
		if first == len(b) {
			return out
		}
		c.to(first)
		p := c.line()
		if m.plain || m.line.Match(trimEnd(b[p.start:p.end])) {
			out = append(out, p)
		}
		c.next(p)
	}
	return out
}

// cursor goes through the lines of a text and counts them.
type cursor struct {
	b      []byte
	start  int // of the line that it is at
	number int
}

// to moves to the line that holds an offset at or after start.
func (c *cursor) to(at int) {
	skipped := c.b[c.start:at]
	if n := bytes.Count(skipped, []byte{'\n'}); n > 0 {
		c.number += n
		c.start += bytes.LastIndexByte(skipped, '\n') + 1
	}
}

func (c *cursor) line() place {
	end := len(c.b)
	if i := bytes.IndexByte(c.b[c.start:], '\n'); i >= 0 {
		end = c.start + i + 1
	}
	return place{c.start, end, c.number}
}

func (c *cursor) next(p place) { c.start, c.number = p.end, p.number+1 }

func trimEnd(line []byte) []byte { return bytes.TrimSuffix(line, []byte{'\n'}) }

// isBinary looks for a zero byte near the beginning, as grep and git do.
func isBinary(b []byte) bool { return bytes.IndexByte(b[:min(len(b), 8000)], 0) >= 0 }

// around returns the matching lines with those around them, each once.
func around(b []byte, at []place, before, after int) []Line {
	out := make([]Line, 0, len(at)*(1+before+after))
	c := cursor{b: b, number: 1} // at the first line that is not in out
	for i, p := range at {
		from := p.start
		for n := 0; n < before && from > c.start; n++ {
			from = bytes.LastIndexByte(b[:from-1], '\n') + 1
		}
		c.to(max(from, c.start))
		for c.start < p.start {
			l := c.line()
			out = append(out, makeLine(l.number, b[l.start:l.end], false))
			c.next(l)
		}
		out = append(out, makeLine(p.number, b[p.start:p.end], true))
		c.next(p)
		limit := len(b)
		if i+1 < len(at) {
			limit = at[i+1].start
		}
		for n := 0; n < after && c.start < limit; n++ {
			l := c.line()
			out = append(out, makeLine(l.number, b[l.start:l.end], false))
			c.next(l)
		}
	}
	return out
}

// maxNeedles bounds what is looked for at once: each needle is a pass over the text.
const maxNeedles = 8

// needle is a plain text.
type needle struct {
	text string // in lower case with fold
	fold bool   // ASCII letters in either case
}

// index finds the needle in b at or after from; -1 when it is not there.
func (n needle) index(b []byte, from int) int {
	if !n.fold {
		if i := bytes.Index(b[from:], []byte(n.text)); i >= 0 {
			return from + i
		}
		return -1
	}
	// The first byte in both cases, whichever comes first; a case that is not there at all is not looked for again.
	lower, upper := n.text[0], n.text[0]
	if 'a' <= lower && lower <= 'z' {
		upper = lower - 'a' + 'A'
	}
	lo, up := from-1, from-1
	for at := from; ; at++ {
		lo, up = nextByte(b, lower, lo, at), nextByte(b, upper, up, at)
		at = min(lo, up)
		if at+len(n.text) > len(b) {
			return -1
		}
		if foldEqual(b[at:at+len(n.text)], n.text) {
			return at
		}
	}
}

// nextByte is where c is at or after at; was is where it was found last.
func nextByte(b []byte, c byte, was, at int) int {
	if was >= at {
		return was
	}
	if at < len(b) {
		if i := bytes.IndexByte(b[at:], c); i >= 0 {
			return at + i
		}
	}
	return len(b)
}

func foldEqual(b []byte, lower string) bool {
	for i := range len(lower) {
		c := b[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// required returns texts of which every match of re contains at least one; none when that cannot be said.
func required(re *syntax.Regexp) []needle {
	switch re.Op {
	case syntax.OpLiteral:
		return literal(re)
	case syntax.OpCapture, syntax.OpPlus:
		return required(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return required(re.Sub[0])
		}
	case syntax.OpConcat:
		var best []needle
		for _, s := range re.Sub {
			if got := required(s); better(got, best) {
				best = got
			}
		}
		return best
	case syntax.OpAlternate:
		var all []needle
		for _, s := range re.Sub {
			got := required(s)
			if len(got) == 0 || len(all)+len(got) > maxNeedles {
				return nil
			}
			all = append(all, got...)
		}
		return all
	}
	return nil
}

// better prefers few and long needles.
func better(a, b []needle) bool {
	if len(a) == 0 || len(b) == 0 {
		return len(a) > 0
	}
	shortest := func(list []needle) int {
		n := len(list[0].text)
		for _, l := range list {
			n = min(n, len(l.text))
		}
		return n
	}
	if len(a) != len(b) {
		return len(a) < len(b)
	}
	return shortest(a) > shortest(b)
}

// literal makes a needle of a text. One that ignores case must be of ASCII letters whose other cases are ASCII too,
// which k and s are not: the Kelvin sign and the long s count as them.
func literal(re *syntax.Regexp) []needle {
	if re.Flags&syntax.FoldCase == 0 {
		text := string(re.Rune)
		if strings.ContainsRune(text, unicode.ReplacementChar) {
			return nil // it also matches bytes that are no character
		}
		return []needle{{text: text}}
	}
	// The longest stretch of letters that can be told.
	var best, now []byte
	for _, r := range re.Rune {
		r = unicode.ToLower(r)
		if r > unicode.MaxASCII || r == 'k' || r == 's' {
			now = nil
			continue
		}
		if now = append(now, byte(r)); len(now) > len(best) {
			best = append([]byte(nil), now...)
		}
	}
	if len(best) == 0 {
		return nil
	}
	return []needle{{text: string(best), fold: true}}
}
