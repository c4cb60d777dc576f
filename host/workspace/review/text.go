package review

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/aymanbagabas/go-udiff/lcs"

	"github.com/hutch-run/hutch/sdk/safefile"
)

// contextLines are shown before and after a change.
const contextLines = 3

// maxText bounds the files that are compared line by line, in bytes. A larger one is said and not shown.
const maxText = 4 << 20

// isBinary decides as git does: a file with a zero byte near its beginning is no text.
func isBinary(b []byte) bool {
	return bytes.IndexByte(b[:min(len(b), 8000)], 0) >= 0
}

// span is a stretch of lines that differ: those from a to b of the old side are replaced by those from c to d of the
// new one, counted from 0, the end not included.
type span struct{ a, b, c, d int }

// Hunk is a group of differences that lie close together, with the lines around them.
type Hunk struct {
	Number   int      `json:"number"`    // from 1, in the file: as --hunks counts
	OldStart int      `json:"old_start"` // as in a unified diff, from 1
	OldLines int      `json:"old_lines"`
	NewStart int      `json:"new_start"`
	NewLines int      `json:"new_lines"`
	Lines    []string `json:"lines"` // each begins with ' ', '-' or '+'; its newline is kept

	first, last int // spans of the textDiff, the last one not included
}

// textDiff is the difference between two texts.
type textDiff struct {
	old, new []string
	spans    []span
}

func diffText(old, new []byte) *textDiff {
	t := &textDiff{old: splitLines(string(old)), new: splitLines(string(new))}
	t.between(0, len(t.old), 0, len(t.new))
	return t
}

// splitLines cuts a text after each newline. The last line may lack one.
func splitLines(s string) []string {
	if s == "" {
		return nil
	}
	lines := strings.SplitAfter(s, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// smallDiff is the number of lines for which the library finds a shortest difference for sure. It gives up looking
// after a hundred steps, so larger stretches are first cut at the lines that occur once on both sides.
const smallDiff = 100

// between finds the differences of two stretches of lines.
func (t *textDiff) between(a, b, c, d int) {
	for a < b && c < d && t.old[a] == t.new[c] {
		a, c = a+1, c+1
	}
	for a < b && c < d && t.old[b-1] == t.new[d-1] {
		b, d = b-1, d-1
	}
	if a == b || c == d {
		if a != b || c != d {
			t.add(span{a, b, c, d})
		}
		return
	}
	var anchors [][2]int
	if b-a+d-c > smallDiff {
		anchors = t.anchors(a, b, c, d)
	}
	if len(anchors) == 0 {
		for _, x := range lcs.DiffLines(t.old[a:b], t.new[c:d]) {
			t.add(span{a + x.Start, a + x.End, c + x.ReplStart, c + x.ReplEnd})
		}
		return
	}
	for _, at := range anchors {
		t.between(a, at[0], c, at[1])
		a, c = at[0]+1, at[1]+1
	}
	t.between(a, b, c, d)
}

// add takes in a span, as one with the span before when they touch.
func (t *textDiff) add(s span) {
	if n := len(t.spans); n > 0 && t.spans[n-1].b == s.a && t.spans[n-1].d == s.c {
		t.spans[n-1].b, t.spans[n-1].d = s.b, s.d
		return
	}
	t.spans = append(t.spans, s)
}

// anchors are the longest row of lines that occur exactly once on each side, in the same order on both.
func (t *textDiff) anchors(a, b, c, d int) [][2]int {
	type seen struct{ old, new, olds, news int }
	lines := make(map[string]*seen, b-a)
	for i := a; i < b; i++ {
		s := lines[t.old[i]]
		if s == nil {
			s = &seen{}
			lines[t.old[i]] = s
		}
		s.old, s.olds = i, s.olds+1
	}
	for i := c; i < d; i++ {
		if s := lines[t.new[i]]; s != nil {
			s.new, s.news = i, s.news+1
		}
	}
	// Patience sorting: the top of each pile, and for every card the one below it on the pile to the left.
	var cards [][2]int
	var before, tops []int
	for i := a; i < b; i++ {
		s := lines[t.old[i]]
		if s.olds != 1 || s.news != 1 {
			continue
		}
		lo, hi := 0, len(tops)
		for lo < hi {
			if m := (lo + hi) / 2; cards[tops[m]][1] < s.new {
				lo = m + 1
			} else {
				hi = m
			}
		}
		cards = append(cards, [2]int{i, s.new})
		left := -1
		if lo > 0 {
			left = tops[lo-1]
		}
		before = append(before, left)
		if lo == len(tops) {
			tops = append(tops, 0)
		}
		tops[lo] = len(cards) - 1
	}
	if len(tops) == 0 {
		return nil
	}
	row := make([][2]int, len(tops))
	for i, at := len(row)-1, tops[len(tops)-1]; i >= 0; i, at = i-1, before[at] {
		row[i] = cards[at]
	}
	return row
}

// hunks groups the spans that share lines of context.
func (t *textDiff) hunks() []*Hunk {
	var list []*Hunk
	for i := 0; i < len(t.spans); {
		j := i + 1
		for j < len(t.spans) && t.spans[j].a-t.spans[j-1].b <= 2*contextLines {
			j++
		}
		list = append(list, t.hunk(i, j, len(list)+1))
		i = j
	}
	return list
}

// split makes a hunk for each span of h; they overlap in their context.
func (t *textDiff) split(h *Hunk) []*Hunk {
	var list []*Hunk
	for i := h.first; i < h.last; i++ {
		list = append(list, t.hunk(i, i+1, h.Number))
	}
	return list
}

// hunk makes the hunk of the spans from i to j.
func (t *textDiff) hunk(i, j, number int) *Hunk {
	from, to := t.spans[i], t.spans[j-1]
	lead := min(contextLines, from.a)
	trail := min(contextLines, len(t.old)-to.b)
	h := &Hunk{
		Number: number, first: i, last: j,
		OldStart: from.a - lead + 1, OldLines: to.b + trail - from.a + lead,
		NewStart: from.c - lead + 1, NewLines: to.d + trail - from.c + lead,
	}
	if h.OldLines == 0 {
		h.OldStart--
	}
	if h.NewLines == 0 {
		h.NewStart--
	}
	at := from.a - lead
	for _, s := range t.spans[i:j] {
		h.add(" ", t.old[at:s.a])
		h.add("-", t.old[s.a:s.b])
		h.add("+", t.new[s.c:s.d])
		at = s.b
	}
	h.add(" ", t.old[at:to.b+trail])
	return h
}

func (h *Hunk) add(op string, lines []string) {
	for _, l := range lines {
		h.Lines = append(h.Lines, op+l)
	}
}

// compose is the old text with the chosen spans replaced.
func (t *textDiff) compose(take func(span int) bool) []byte {
	var out []byte
	at := 0
	put := func(lines []string) {
		for _, l := range lines {
			out = append(out, l...)
		}
	}
	for i, s := range t.spans {
		if !take(i) {
			continue
		}
		put(t.old[at:s.a])
		put(t.new[s.c:s.d])
		at = s.b
	}
	put(t.old[at:])
	return out
}

// counts are the numbers of lines that are new and gone.
func (t *textDiff) counts() (added, removed int) {
	for _, s := range t.spans {
		added += s.d - s.c
		removed += s.b - s.a
	}
	return added, removed
}

// content is what a change does to the content of a file, as far as it can be shown.
type content struct {
	// note says why lines are not shown: the file is binary, too large, or cannot be read. Binary is set for the first.
	note   string
	binary bool
	text   *textDiff // nil with a note, and where no content changes
}

// content reads both sides of a change and compares them. It may be called concurrently, each goroutine with its own
// directory.
func (r *Review) content(ctx context.Context, c *Change, project *dir) (content, error) {
	if !c.hasContent() && !(c.New.Type == Nothing && c.Old.Type == File) && c.Kind != Retyped || c.Kind == Renamed {
		return content{}, nil
	}
	var old, now []byte
	if c.Old.Type == File {
		if c.Old.Size > maxText {
			return content{note: fmt.Sprintf("too large to show: it had %d bytes", c.Old.Size)}, nil
		}
		f, now, err := project.open(c.Path)
		if err == nil && !now.Untouched(c.Old.Stat) {
			err = errors.New("it changed in the project while it was looked at")
		}
		if f != nil {
			defer f.Close()
		}
		if err == nil {
			old, err = io.ReadAll(io.LimitReader(f, maxText+1))
		}
		if err != nil {
			return content{note: "cannot be read in the project: " + err.Error()}, nil
		}
	}
	if c.New.Type == File {
		if c.New.Size > maxText {
			return content{note: fmt.Sprintf("too large to show: it has %d bytes", c.New.Size)}, nil
		}
		b, err := r.newBytes(ctx, c)
		var bad *safefile.Error
		if errors.As(err, &bad) {
			return content{note: "cannot be read in the sandbox: " + bad.Detail}, nil
		}
		if err != nil {
			return content{}, err
		}
		now = b
	}
	if isBinary(old) || isBinary(now) {
		return content{binary: true, note: "binary"}, nil
	}
	return content{text: diffText(old, now)}, nil
}

// newBytes reads the sandbox's version of a file of at most maxText bytes, from the stage when it is there.
func (r *Review) newBytes(ctx context.Context, c *Change) ([]byte, error) {
	if c.blob != nil {
		f, err := c.blob.open()
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return io.ReadAll(io.LimitReader(f, maxText))
	}
	var buf bytes.Buffer
	if _, err := r.source.copy(ctx, &buf, c.Path, maxText); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}
