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
// so where every match contains one, that is looked for first.
type matcher struct {
	line   *regexp.Regexp // for one line, without its end
	whole  *regexp.Regexp // for a text of many lines; nil when it would not find the same lines
	needle []byte         // every match contains it; empty where nothing is known
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
	line, err := regexp.Compile(expr)
	if err != nil {
		e := &Error{Reason: ReasonRequest, Detail: fmt.Sprintf("the pattern is no regular expression: %v", err), Err: err}
		e.Hint = "the syntax is RE2's, without backreferences and lookaround; a plain text can be searched for as such"
		return nil, e
	}
	m := &matcher{line: line}
	if parsed, err := syntax.Parse(expr, syntax.Perl); err == nil {
		m.needle = []byte(required(parsed.Simplify()))
	}
	// With (?m) the ends of lines are what ^ and $ mean in a line alone. \A and \z have no such form.
	if many, err := syntax.Parse("(?m:"+expr+")", syntax.Perl); err == nil && !hasTextAnchor(many) {
		if m.whole, err = regexp.Compile("(?m:" + expr + ")"); err != nil {
			m.whole = nil
		}
	}
	return m, nil
}

// hasTextAnchor reports whether the expression says \A or \z.
func hasTextAnchor(re *syntax.Regexp) bool {
	return re.Op == syntax.OpBeginText || re.Op == syntax.OpEndText || slices.ContainsFunc(re.Sub, hasTextAnchor)
}

// lines returns the first most lines of b that match.
func (m *matcher) lines(b []byte, most int) []place {
	var out []place
	c := cursor{b: b, number: 1}
	for c.start < len(b) && len(out) < most {
		if len(m.needle) > 0 {
			i := bytes.Index(b[c.start:], m.needle)
			if i < 0 {
				return out
			}
			c.to(c.start + i)
		} else if m.whole != nil {
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

// required returns a text that every match of re contains, the longest one; "" where that cannot be said.
func required(re *syntax.Regexp) (text string) {
	switch re.Op {
	case syntax.OpLiteral:
		text = string(re.Rune)
		if re.Flags&syntax.FoldCase != 0 || strings.ContainsRune(text, unicode.ReplacementChar) { // which matches what is not UTF-8
			return ""
		}
	case syntax.OpCapture, syntax.OpPlus:
		return required(re.Sub[0])
	case syntax.OpConcat:
		for _, s := range re.Sub {
			if got := required(s); len(got) > len(text) {
				text = got
			}
		}
	}
	return text
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
