package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"
	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/overlay"
)

// GrepRequest says what to search for.
type GrepRequest struct {
	Pattern    string   `json:"pattern" jsonschema:"regular expression in RE2's syntax, matched against each line"`
	Fixed      bool     `json:"fixed,omitempty" jsonschema:"the pattern is plain text"`
	IgnoreCase bool     `json:"ignore_case,omitempty"`
	Paths      []string `json:"paths,omitempty" jsonschema:"files and directories to search; default the workspace"`
	// Include and Exclude are globs with **. One without a slash is matched against names, others against the path
	// relative to the workspace. A directory that is excluded is not looked into.
	Include   []string `json:"include,omitempty" jsonschema:"only files that match one of these globs, such as *.go"`
	Exclude   []string `json:"exclude,omitempty" jsonschema:"no files or directories that match one of these globs"`
	Before    int      `json:"before,omitempty" jsonschema:"lines to show before each match"`
	After     int      `json:"after,omitempty" jsonschema:"lines to show after each match"`
	Ignored   bool     `json:"ignored,omitempty" jsonschema:"also in .git, and in what .gitignore files name"`
	FilesOnly bool     `json:"files_only,omitempty" jsonschema:"only the names of files that match"`
	Skip      int      `json:"offset,omitempty" jsonschema:"matching lines to pass over, for the next page"`
	// SkipIgnored passes over what git ignores, unless Ignored is set.
	SkipIgnored bool `json:"-"`
	// Max bounds the matching lines; 0 means DefaultMaxMatches.
	Max int `json:"limit,omitempty" jsonschema:"matching lines in the answer; default 100, at most 1000"`
}

// DefaultMaxMatches is how many matching lines a search returns at most, unless it is asked for more.
const DefaultMaxMatches = 1000

// Line is one line of a file.
type Line struct {
	Number int    `json:"line"`
	Text   string `json:"text"` // without its end; at most MaxLine bytes
	Match  bool   `json:"match,omitempty" jsonschema:"else it is context"`
	Cut    bool   `json:"cut,omitempty"` // Text is only the beginning
}

// MaxLine is how many bytes of a line are returned.
const MaxLine = 2000

// Match is a file with lines that match. Lines that do not follow on each other have a gap between them.
type Match struct {
	Path  string `json:"path"`
	Layer string `json:"layer,omitempty"` // as in Entry
	Lines []Line `json:"lines,omitempty"` // none with FilesOnly
	Count int    `json:"count"`           // matching lines among Lines; with FilesOnly 1
}

// Matches is what a search found, in path order.
type Matches struct {
	Files []Match `json:"files"`
	Count int     `json:"count"` // matching lines
	// Truncated says that there are more matches than asked for, which are the first ones in path order.
	Truncated bool `json:"truncated,omitempty"`
	Next      int  `json:"next,omitempty" jsonschema:"offset of the next page; missing at the end"`
	// Searched is how many files were looked into, Binary how many more were left out because they hold no text.
	Searched int `json:"searched"`
	Binary   int `json:"binary"`
	// Linked is how many files were left out because they have several links. A tree of a package manager may be full of
	// them, so they are not in Skipped.
	Linked int `json:"linked,omitempty"`
	// Skipped are files and directories that could not be read, or must not be, each with the reason.
	Skipped []Skipped `json:"skipped,omitempty"`
}

// Grep searches files for lines that match. What is not a regular file is passed over.
func (f *Files) Grep(ctx context.Context, r GrepRequest) (*Matches, error) {
	m, err := newMatcher(r)
	if err != nil {
		return nil, err
	}
	if r.Before < 0 || r.After < 0 || r.Max < 0 || r.Skip < 0 {
		return nil, refuse("", ReasonRequest, "context and the number of matches cannot be negative")
	}
	for _, g := range slices.Concat(r.Include, r.Exclude) {
		if !doublestar.ValidatePattern(g) {
			return nil, refuse(g, ReasonRequest, "it is no glob")
		}
	}
	if r.Max == 0 {
		r.Max = DefaultMaxMatches
	}
	if len(r.Paths) == 0 {
		r.Paths = []string{"."}
	}
	g := &grep{r: r, m: m, max: f.o.MaxSize, out: &Matches{Files: []Match{}}}
	for _, name := range r.Paths {
		s, err := f.find(name)
		if err != nil {
			return nil, err
		}
		if err := g.search(ctx, f, s); err != nil {
			return nil, explain(s.name, err)
		}
	}
	return g.result(), nil
}

// grep is one search.
type grep struct {
	r       GrepRequest
	m       *matcher
	max     int64
	buffers sync.Pool

	mu   sync.Mutex
	out  *Matches
	kept int // matching lines in out

	// Files whose names sort after this one cannot be among the first matches; nil for no such name.
	last atomic.Pointer[string]
}

// need is how many matching lines are looked for: one more than asked for, so that it shows when there is more.
func (g *grep) need() int { return g.r.Skip + g.r.Max + 1 }

func (g *grep) search(ctx context.Context, f *Files, s spot) error {
	var ignored *ignorer
	if g.r.SkipIgnored && !g.r.Ignored && s.area.name == "workspace" {
		ignored = f.ignorer(ctx)
	}
	err := s.view.scan(ctx, s.rel, overlay.ScanOptions{Skip: func(rel string, isDir bool) bool {
		name := s.at(rel).name
		return isDir && g.excluded(name) || rel != s.rel && ignored.skips(name, isDir)
	}},
		func(d folder) error { return g.visit(s, d) })
	if !errors.Is(err, unix.ENOTDIR) {
		return err
	}
	b, c, err := f.content(ctx, s)
	if err != nil {
		return err
	}
	var part Matches
	g.file(&part, c.Path, overlay.Layer(c.Layer), b)
	g.add(&part)
	return nil
}

// visit searches a part of a directory.
func (g *grep) visit(s spot, d folder) error {
	var part Matches
	if d.err != nil {
		part.Skipped = append(part.Skipped, skipped(s.at(d.path).name, d.err))
	}
	buf, _ := g.buffers.Get().(*[]byte)
	if buf == nil {
		buf = new([]byte)
	}
	defer g.buffers.Put(buf)
	for _, n := range d.names {
		if n.Type != 0 {
			continue
		}
		name := s.at(path.Join(d.path, n.Name)).name
		if g.excluded(name) || !g.included(name) || g.beyond(name) {
			continue
		}
		b, err := d.dir.ReadFile(n, g.max, *buf)
		if err != nil {
			switch sk := skipped(name, err); sk.Reason {
			case ReasonMissing:
			case ReasonLinked:
				part.Linked++
			default:
				part.Skipped = append(part.Skipped, sk)
			}
			continue
		}
		if cap(b) > cap(*buf) {
			*buf = b[:0]
		}
		g.file(&part, name, n.Layer, b)
	}
	g.add(&part)
	return nil
}

// file searches one file.
func (g *grep) file(part *Matches, name string, layer overlay.Layer, b []byte) {
	if isBinary(b) {
		part.Binary++
		return
	}
	part.Searched++
	most := g.need()
	if g.r.FilesOnly {
		most = 1
	}
	at := g.m.lines(b, most)
	if len(at) == 0 {
		return
	}
	m := Match{Path: name, Layer: string(layer), Count: len(at)}
	if !g.r.FilesOnly {
		m.Lines = around(b, at, g.r.Before, g.r.After)
	}
	part.Files = append(part.Files, m)
}

func (g *grep) add(part *Matches) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.out.Files = append(g.out.Files, part.Files...)
	g.out.Skipped = append(g.out.Skipped, part.Skipped...)
	g.out.Searched += part.Searched
	g.out.Binary += part.Binary
	g.out.Linked += part.Linked
	for i := range part.Files {
		g.kept += part.Files[i].Count
	}
	if g.kept > 2*g.need() {
		g.trim()
	}
}

// beyond reports whether there are enough matches before a name.
func (g *grep) beyond(name string) bool {
	last := g.last.Load()
	return last != nil && name > *last
}

// trim drops what cannot be among the first matches.
func (g *grep) trim() {
	g.sort()
	sum := 0
	for i := range g.out.Files {
		if sum += g.out.Files[i].Count; sum >= g.need() {
			clear(g.out.Files[i+1:])
			g.out.Files = g.out.Files[:i+1]
			last := g.out.Files[i].Path
			g.last.Store(&last)
			break
		}
	}
	g.kept = sum
}

func (g *grep) sort() {
	slices.SortFunc(g.out.Files, func(a, b Match) int { return strings.Compare(a.Path, b.Path) })
	g.out.Files = slices.CompactFunc(g.out.Files, func(a, b Match) bool { return a.Path == b.Path }) // paths may overlap
}

// result sorts what was found and keeps as much of it as was asked for.
func (g *grep) result() *Matches {
	out := g.out
	g.sort()
	g.skip()
	slices.SortFunc(out.Skipped, func(a, b Skipped) int { return strings.Compare(a.Path, b.Path) })
	left := g.r.Max
	for i := range out.Files {
		m := &out.Files[i]
		if left == 0 {
			out.Files, out.Truncated = out.Files[:i], true
			break
		}
		if m.Count > left {
			m.keep(left, g.r.After)
			out.Truncated = true
		}
		left -= m.Count
	}
	out.Count = g.r.Max - left
	if out.Truncated {
		out.Next = g.r.Skip + out.Count
	}
	return out
}

// skip passes over the first matches.
func (g *grep) skip() {
	left := g.r.Skip
	for i := range g.out.Files {
		m := &g.out.Files[i]
		if m.Count > left {
			m.drop(left, g.r.Before)
			g.out.Files = g.out.Files[i:]
			return
		}
		left -= m.Count
	}
	g.out.Files = []Match{}
}

// drop takes away the first n matching lines of a match, which has more.
func (m *Match) drop(n, before int) {
	if n == 0 {
		return
	}
	seen := 0
	first := slices.IndexFunc(m.Lines, func(l Line) bool {
		if l.Match {
			seen++
		}
		return seen > n
	})
	from := first
	for from > 0 && !m.Lines[from-1].Match && m.Lines[from-1].Number >= m.Lines[first].Number-before {
		from--
	}
	m.Lines = m.Lines[from:]
	m.Count -= n
}

// keep cuts a match down to its first n matching lines.
func (m *Match) keep(n, after int) {
	seen, last := 0, 0
	for i, l := range m.Lines {
		if l.Match {
			if seen == n {
				m.Lines = m.Lines[:i]
				break
			}
			seen, last = seen+1, l.Number
		}
	}
	for len(m.Lines) > 0 && m.Lines[len(m.Lines)-1].Number > last+after {
		m.Lines = m.Lines[:len(m.Lines)-1]
	}
	m.Count = n
}

func (g *grep) excluded(name string) bool { return matchesAny(g.r.Exclude, name) }

func (g *grep) included(name string) bool {
	return len(g.r.Include) == 0 || matchesAny(g.r.Include, name)
}

func matchesAny(globs []string, name string) bool {
	for _, g := range globs {
		subject := name
		if !strings.Contains(g, "/") {
			subject = path.Base(name)
		}
		if ok, _ := doublestar.Match(g, subject); ok {
			return true
		}
	}
	return false
}

// makeLine makes a result of a line.
func makeLine(number int, b []byte, match bool) Line {
	l := Line{Number: number, Match: match}
	if n := len(b); n > 0 && b[n-1] == '\n' {
		b = b[:n-1]
	}
	if n := len(b); n > 0 && b[n-1] == '\r' {
		b = b[:n-1]
	}
	if len(b) > MaxLine {
		cut := MaxLine
		for cut > MaxLine-utf8.UTFMax && !utf8.RuneStart(b[cut]) {
			cut--
		}
		b, l.Cut = b[:cut], true
	}
	l.Text = strings.ToValidUTF8(string(b), "\uFFFD")
	return l
}

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
		// which matches what is not UTF-8
		if re.Flags&syntax.FoldCase != 0 || strings.ContainsRune(text, unicode.ReplacementChar) {
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
