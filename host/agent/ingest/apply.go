package ingest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/termsafe"
	"github.com/hutch-run/hutch/host/units"
	"github.com/hutch-run/hutch/sdk/safepath"
)

// Tree is the directory that a patch is for.
type Tree interface {
	// Read returns a file and its permissions. The error is fs.ErrNotExist when nothing is there.
	Read(path string) ([]byte, fs.FileMode, error)
	// Names are the files of the directory, at most maxNames.
	Names() []string
}

const maxNames = 20_000

// Outcome is what becomes of one path.
type Outcome struct {
	Path    string
	Deleted bool
	Content []byte      // unless Deleted
	Mode    fs.FileMode // permissions, unless Deleted
	Created bool        // there was nothing before
}

// Apply works out what the answer makes of a tree: its patch, or its files, each of which replaces what is there. What
// comes to the same as before is left out. Nothing is written; either all of it can be done, or the error, an *Error
// when it is for the answer's author to mend, says what cannot. notes say what was done with good will.
func (a *Answer) Apply(t Tree) (out []Outcome, notes []string, err error) {
	s := &state{parser: parser{out: Answer{Format: a.Format}}, tree: t, files: map[string]*version{}}
	if a.assumed > 0 {
		s.fail(a.assumed, "the block names no file, and which one of the directory it is for would be a guess",
			"name it in the line that opens the block: ```python path=src/main.py")
	}
	if len(a.Changes) == 0 {
		for _, f := range a.Files {
			if v := s.at(f.Path, f.Line); v != nil {
				mode := f.Mode
				if v.there && mode == 0o644 {
					mode = v.mode // the answer does not say
				}
				v.set(f.Content, mode)
			}
		}
	}
	for i := range a.Changes {
		s.do(&a.Changes[i])
	}
	out = s.outcomes()
	if len(s.problems) > 0 {
		return nil, nil, s.err()
	}
	return out, s.out.Notes, s.failed
}

// state is the tree with what was done so far.
type state struct {
	parser
	tree   Tree
	files  map[string]*version
	names  []string
	work   int64 // lines that hunks were looked for in, all together
	failed error // not to be mended by the answer's author
}

// maxPatchWork bounds work: so many lines are copied and compared in a second or two.
const maxPatchWork = 20_000_000

// version is a file as it is now and was at first.
type version struct {
	content, first []byte
	mode, firstMod fs.FileMode
	there, was     bool
}

func (v *version) set(content []byte, mode fs.FileMode) {
	v.content, v.mode, v.there = content, mode, true
}

// at is the file at a path, or nothing there; nil when it cannot be read.
func (s *state) at(name string, line int) *version {
	if v := s.files[name]; v != nil {
		return v
	}
	b, mode, err := s.tree.Read(name)
	v := &version{}
	switch {
	case err == nil:
		v.content, v.first, v.mode, v.firstMod, v.there, v.was = b, b, mode, mode, true, true
	case !errors.Is(err, fs.ErrNotExist):
		s.failIn(name, line, err.Error(), "")
		return nil
	}
	s.files[name] = v
	return v
}

// do does one change, or says why it cannot be done.
func (s *state) do(c *Change) {
	v := s.at(c.Path, c.Line)
	if v == nil {
		return
	}
	switch c.Op {
	case Add:
		if v.there && s.out.Format == V4A {
			s.note("%s: the added file replaces the one that is there", safepathQuote(c.Path))
			v.set(c.Content, v.mode)
			return
		}
		if v.there && !(len(v.content) == 0 && s.out.Format == SearchReplace) {
			q := Problem{Path: c.Path, Line: c.Line, Message: "the file is to be added, and is there already",
				Hint: "update it, or delete it first"}
			if s.out.Format == SearchReplace {
				q.Message, q.Hint = "the text to search for is empty, and the file is there already",
					"give the lines that the new ones replace"
			}
			s.problem(q)
			return
		}
		mode := c.Mode
		if mode == 0 {
			mode = 0o644
		}
		v.set(c.Content, mode)
		return
	case Delete:
		if !v.there {
			s.missing(c)
			return
		}
		if len(c.Hunks) > 0 {
			if rest, ok := s.patch(c, v); !ok {
				return
			} else if len(bytes.TrimSpace(rest)) > 0 {
				s.failIn(c.Path, c.Line, "the patch deletes the file, and the file holds more than what the patch takes away",
					"read the file again")
				return
			}
		}
		v.there = false
		return
	}
	if !v.there && s.out.Format == SearchReplace && !strings.Contains(c.Path, "/") {
		if same := s.namesakes(c.Path); len(same) == 1 && len(s.names) < maxNames && path.Base(same[0]) == c.Path {
			s.note("%s is taken as %s, the only file of that name", safepathQuote(c.Path), safepathQuote(same[0]))
			there := *c
			there.Path = same[0]
			if c, v = &there, s.at(there.Path, c.Line); v == nil {
				return
			}
		}
	}
	if !v.there {
		s.missing(c)
		return
	}
	content, mode := v.content, v.mode
	if len(c.Hunks) > 0 {
		patched, ok := s.patch(c, v)
		if !ok {
			return
		}
		content = patched
	}
	if c.Mode != 0 {
		mode = c.Mode
	}
	if c.To == "" || c.To == c.Path {
		v.set(content, mode)
		return
	}
	to := s.at(c.To, c.Line)
	switch {
	case to == nil:
	case to.there && s.out.Format != V4A:
		s.failIn(c.Path, c.Line, fmt.Sprintf("it is to be moved to %s, which is there already", safepathQuote(c.To)),
			"delete that first, or choose another name")
	default:
		if to.there {
			s.note("%s: the moved file replaces the one that is there", safepathQuote(c.To))
		}
		to.set(content, mode)
		v.there = false
	}
}

// missing says that a file is not there, and which one may be meant.
func (s *state) missing(c *Change) {
	q := Problem{Path: c.Path, Line: c.Line, Message: "there is no such file", Hint: "a new file is added, not updated"}
	if c.Op == Delete {
		q.Hint = ""
	}
	if same := s.namesakes(c.Path); len(same) > 0 {
		q.Hint = "there is " + shortList(same)
	}
	s.problem(q)
}

// namesakes are files of the same name in other directories, sorted.
func (s *state) namesakes(name string) (same []string) {
	if s.names == nil {
		if s.names = s.tree.Names(); s.names == nil {
			s.names = []string{}
		}
	}
	for _, n := range s.names {
		if strings.EqualFold(path.Base(n), path.Base(name)) && n != name {
			same = append(same, n)
		}
	}
	sort.Strings(same)
	return same
}

// outcomes are the differences in path order.
func (s *state) outcomes() []Outcome {
	var out []Outcome
	var total int64
	set := safepath.Set{}
	for name, v := range s.files {
		same := v.there == v.was && (!v.there || bytes.Equal(v.content, v.first) && v.mode == v.firstMod)
		if same {
			continue
		}
		o := Outcome{Path: name, Deleted: !v.there, Created: !v.was}
		if v.there {
			o.Content, o.Mode = v.content, v.mode
			total += int64(len(v.content))
			if len(v.content) > runfile.MaxFileSize {
				s.failIn(name, 0, "the file would be larger than "+units.FormatSize(runfile.MaxFileSize), "")
			}
		}
		out = append(out, o)
	}
	if total > runfile.MaxFilesSize {
		s.fail(0, "the changed files would be larger than "+units.FormatSize(runfile.MaxFilesSize)+" together", "")
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Path < out[j].Path })
	for _, o := range out {
		if !o.Deleted {
			if err := set.AddFile(o.Path); err != nil {
				s.badPath(err, o.Path, 0)
			}
		}
	}
	return out
}

// text is a file in lines.
type text struct {
	lines []string // without their ends
	eol   bool     // the last one has one
	crlf  bool     // all of them end with CRLF
	bom   bool     // a byte order mark is before them
}

const byteOrderMark = "\ufeff"

// splitText takes a file apart. Where all lines end with CRLF those ends are no part of the lines, unless exact: a
// patch that has them itself. So it is with a byte order mark, unless marked.
func splitText(b []byte, exact, marked bool) text {
	s := string(b)
	t := text{eol: true}
	if !marked {
		s, t.bom = strings.CutPrefix(s, byteOrderMark)
	}
	if s == "" {
		return t
	}
	if n := strings.Count(s, "\n"); !exact && n > 0 && n == strings.Count(s, "\r\n") {
		t.crlf = true
		s = strings.ReplaceAll(s, "\r\n", "\n")
	}
	t.eol = strings.HasSuffix(s, "\n")
	t.lines = strings.Split(strings.TrimSuffix(s, "\n"), "\n")
	return t
}

func (t *text) bytes() []byte {
	end := "\n"
	if t.crlf {
		end = "\r\n"
	}
	if len(t.lines) == 0 {
		return []byte{}
	}
	s := strings.Join(t.lines, end)
	if t.eol {
		s += end
	}
	if t.bom {
		s = byteOrderMark + s
	}
	return []byte(s)
}

// patch does the hunks of a change to a file.
func (s *state) patch(c *Change, v *version) ([]byte, bool) {
	if bytes.IndexByte(v.content, 0) >= 0 || !utf8.Valid(v.content) {
		s.failIn(c.Path, c.Line, "the file is no text, so no patch can be done to it", "give the whole file")
		return nil, false
	}
	has := func(part func(s, of string) bool, of string) bool {
		return slices.ContainsFunc(c.Hunks, func(h Hunk) bool {
			return slices.ContainsFunc(h.Lines, func(l HunkLine) bool { return part(l.Text, of) })
		})
	}
	t := splitText(v.content, has(strings.HasSuffix, "\r"), has(strings.HasPrefix, byteOrderMark))
	at, shift, ok, number := 0, 0, true, 0
	hunks := slices.Clone(c.Hunks)
	for i := 0; i < len(hunks); i++ {
		h := &hunks[i]
		if !h.piece {
			number++
		}
		if s.work += int64(len(t.lines) + len(h.Lines)); s.work > maxPatchWork {
			s.problem(Problem{Path: c.Path, Hunk: number, Line: h.Line,
				Message: "the patch has too many hunks for files of this size", Hint: "give the whole file"})
			return nil, false
		}
		if h.anywhere {
			at = 0
		}
		pos, differs, q := locate(&t, h, at, shift, s.out.Format)
		if q != nil && h.anywhere {
			if parts := h.pieces(); len(parts) > 0 {
				hunks = slices.Replace(hunks, i, i+1, parts...)
				i, number = i-1, number-1
				continue
			}
		}
		if q != nil {
			q.Path, q.Hunk, q.Line = c.Path, number, h.Line
			if at > 0 && !h.anywhere && number > 1 {
				q.Hint += fmt.Sprintf("; it is looked for below hunk %d, from line %d of the file as it is by then", number-1, at+1)
			}
			s.problem(*q)
			ok = false
			continue // the rest may have problems of its own
		}
		if differs != "" {
			s.note("%s: hunk %d differs from the file in %s", safepathQuote(c.Path), number, differs)
		}
		if s.out.Format == V4A && len(h.old()) == 0 && len(h.Anchors) == 0 && len(t.lines) > 0 {
			s.note("%s: hunk %d says no place: its lines are at the end", safepathQuote(c.Path), number)
		}
		moved := 0
		if h.Start > 0 {
			if moved = pos - (h.Start - 1) - shift; moved != 0 {
				s.note("%s: hunk %d was found in line %d", safepathQuote(c.Path), number, pos+1)
			}
		}
		before := len(t.lines)
		at = t.replace(h, pos)
		shift += moved + len(t.lines) - before
	}
	if !ok {
		return nil, false
	}
	return t.bytes(), true
}

// replace does a hunk at a line, and returns the line after it.
func (t *text) replace(h *Hunk, pos int) (after int) {
	var lines []string
	n := 0
	for _, l := range h.Lines {
		switch l.Op {
		case ' ':
			lines = append(lines, t.lines[pos+n]) // as it is in the file
			n++
		case '-':
			n++
		default:
			lines = append(lines, l.Text)
		}
	}
	atEnd := pos+n == len(t.lines)
	wasEmpty := len(t.lines) == 0
	out := make([]string, 0, len(t.lines)-n+len(lines))
	out = append(append(append(out, t.lines[:pos]...), lines...), t.lines[pos+n:]...)
	t.lines = out
	if atEnd {
		switch {
		case h.NewNoEOL:
			t.eol = false
		case h.OldNoEOL || wasEmpty:
			t.eol = true
		}
	}
	return pos + len(lines)
}

// locate finds where a hunk goes: the index of its first line. from is where the hunk before it ended, shift by how
// much the lines of the file have moved against the numbers in the patch. Lines must be the same, but for white space
// at their ends, and for what the tool of the format allows where only one place is like that: typographic signs (V4A)
// and indentation (SEARCH/REPLACE), which the lines of h then get. differs says which. Where the hunk would fit in
// several places and nothing says which is meant, it fits nowhere.
func locate(t *text, h *Hunk, from, shift int, format Format) (pos int, differs string, q *Problem) {
	old := h.old()
	for _, a := range h.Anchors {
		at, near := anchor(t.lines, a, from)
		if at < 0 {
			return 0, "", &Problem{Message: fmt.Sprintf("the line %q after @@ is not in the file", clip(a)),
				Hint: "give a line as it is in the file, or leave it out", Nearest: near}
		}
		from = at + 1
	}
	if len(old) == 0 {
		pos, q = place(t, h, from, shift)
		return pos, "", q
	}
	if want := h.Start - 1 + shift; h.Start > 0 && want >= from &&
		len(matches(t.lines[:min(want+len(old), len(t.lines))], old, want)) == 1 {
		return want, "", nil
	}
	all := matches(t.lines, old, 0)
	if len(all) == 0 {
		all, differs = matches(each(t.lines, trimRight), each(old, trimRight), 0), "white space at the ends of lines"
	}
	switch {
	case len(all) > 0:
	case format == V4A:
		if at := matches(each(t.lines, plain), each(old, plain), 0); len(at) == 1 {
			all, differs = at, "typographic signs"
		}
	case format == SearchReplace:
		if at, lines := shifted(t.lines, h); lines != nil {
			all, h.Lines, differs = []int{at}, lines, "indentation"
		}
	}
	if h.AtEnd {
		all = slices.DeleteFunc(all, func(i int) bool { return i+len(old) != len(t.lines) })
	}
	candidates := slices.DeleteFunc(slices.Clone(all), func(i int) bool { return i < from })
	switch {
	case len(candidates) == 0 && len(all) > 0:
		return 0, "", &Problem{Message: fmt.Sprintf("its lines are in the file only before, at %s", lineList(all)),
			Hint: "give the hunks in the order of the file"}
	case len(candidates) == 0:
		near := nearest(t.lines, old)
		return 0, "", &Problem{Message: describeMiss(t.lines, old, near),
			Hint:    "the lines that are taken away, and those around them, must be exactly as in the file: read it again",
			Nearest: near}
	case len(candidates) == 1 || len(h.Anchors) > 0:
		return candidates[0], differs, nil
	}
	if want := h.Start - 1 + shift; h.Start > 0 && slices.Contains(candidates, want) {
		return want, differs, nil
	}
	hint := "give more of the lines around"
	if h.Start == 0 && !h.anywhere && !h.piece {
		hint += ", or the line of the function or class that it is in after @@"
	}
	return 0, "", &Problem{Message: fmt.Sprintf("its lines are in the file %d times, at %s", len(candidates),
		lineList(candidates)), Hint: hint}
}

// place finds where a hunk goes that only adds lines.
func place(t *text, h *Hunk, from, shift int) (int, *Problem) {
	at := h.Start - 1 + shift
	miss := &Problem{Message: "it only adds lines and nothing says where", Hint: "give some of the lines around"}
	switch {
	case h.anywhere && len(t.lines) > 0:
		miss.Message = "the text to search for is empty"
		miss.Hint = "give the lines that the new ones replace, and repeat them among the new ones"
	case h.AtEnd || len(t.lines) == 0:
		return len(t.lines), nil
	case len(h.Anchors) > 0:
		return from, nil
	case h.Start > 0 && at >= from && at <= len(t.lines):
		return at, nil
	case h.Start > 0:
		miss.Message = fmt.Sprintf("it adds lines at line %d, and the file has %d", h.Start, len(t.lines))
	}
	return 0, miss
}

// anchor finds the first line from a place on that is a, but for white space around it; else one that begins so.
func anchor(lines []string, a string, from int) (int, *Nearest) {
	for i := from; i < len(lines); i++ {
		if strings.TrimSpace(lines[i]) == a {
			return i, nil
		}
	}
	found := -1
	for i := from; i < len(lines); i++ {
		if strings.HasPrefix(strings.TrimSpace(lines[i]), a) {
			if found >= 0 {
				return -1, nil
			}
			found = i
		}
	}
	if found < 0 {
		return -1, nearest(lines, []string{a})
	}
	return found, nil
}

func each(lines []string, do func(string) string) []string {
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = do(l)
	}
	return out
}

func trimRight(s string) string { return strings.TrimRight(s, " \t\r") }

// plain has the signs of a keyboard for those of print, as Codex compares lines.
func plain(s string) string {
	return trimRight(strings.Map(func(r rune) rune {
		switch {
		case r >= 0x2010 && r <= 0x2015, r == 0x2212:
			return '-'
		case r >= 0x2018 && r <= 0x201b:
			return '\''
		case r >= 0x201c && r <= 0x201f:
			return '"'
		case r == 0xa0, r >= 0x2002 && r <= 0x200a, r == 0x202f, r == 0x205f, r == 0x3000:
			return ' '
		}
		return r
	}, s))
}

// shifted finds the only place where the old lines of h are with more or less indentation, the same for all of them,
// and gives h's lines that indentation; nil when there is no such place, or several.
func shifted(lines []string, h *Hunk) (at int, out []HunkLine) {
	old := each(h.old(), trimRight)
	first := slices.IndexFunc(old, func(l string) bool { return l != "" })
	if first < 0 {
		return 0, nil
	}
	strip := func(l string) string { return strings.TrimLeft(trimRight(l), " \t") }
	for _, i := range matches(each(lines, strip), each(old, strip), 0) {
		there := trimRight(lines[i+first])
		more, isMore := strings.CutSuffix(there, old[first])
		less, isLess := strings.CutSuffix(old[first], there)
		shift := func(l string) (string, bool) {
			if strings.TrimSpace(l) == "" {
				return l, true
			}
			if isMore {
				return more + l, true
			}
			return strings.CutPrefix(l, less)
		}
		ok := isMore || isLess
		var moved []HunkLine
		n := i
		for _, l := range h.Lines {
			text, good := shift(l.Text)
			if l.Op != '+' {
				good = good && trimRight(text) == trimRight(lines[n])
				n++
			}
			ok = ok && good
			moved = append(moved, HunkLine{l.Op, text})
		}
		switch {
		case ok && out != nil:
			return 0, nil
		case ok:
			at, out = i, moved
		}
	}
	return at, out
}

// matches are all places where old is.
func matches(lines, old []string, from int) []int {
	var out []int
	work := 0
	for i := from; i+len(old) <= len(lines); i++ {
		n := 0
		for n < len(old) && lines[i+n] == old[n] {
			n++
		}
		if n == len(old) {
			out = append(out, i)
		}
		// A file of one line a million times, and a hunk of it half a million times, must end as well.
		if work += n + 1; work > maxWork {
			return nil
		}
	}
	return out
}

// maxWork bounds the comparisons of lines for one hunk.
const maxWork = 20_000_000

func lineList(at []int) string {
	const most = 8
	var s []string
	for _, i := range at[:min(len(at), most)] {
		s = append(s, fmt.Sprint(i+1))
	}
	text := "lines " + strings.Join(s, ", ")
	if len(at) == 1 {
		text = "line " + s[0]
	}
	if len(at) > most {
		text += fmt.Sprintf(" and %d more", len(at)-most)
	}
	return text
}

const (
	maxNear     = 12  // lines that are shown of a file
	maxNearLine = 200 // bytes of each
)

// nearest finds the lines of a file that are most like those looked for; nil when nothing is.
func nearest(lines, old []string) *Nearest {
	if len(old) == 0 || len(lines) == 0 {
		return nil
	}
	want := map[string]bool{}
	for _, l := range old[:min(len(old), 200)] {
		for _, w := range wordsOf(l) {
			want[w] = true
		}
	}
	// How much of each line is in those looked for, and then the window with the most of it.
	lines = lines[:min(len(lines), 50_000)]
	sums := make([]int, len(lines)+1)
	for i, l := range lines {
		words, n := wordsOf(l), 0
		for _, w := range words {
			if want[w] {
				n++
			}
		}
		sums[i+1] = sums[i] + 100*n/max(len(words), 1)
	}
	size, best, at := min(len(old), len(lines)), 0, 0
	for i := range len(lines) - size + 1 {
		if sum := sums[i+size] - sums[i]; sum > best {
			best, at = sum, i
		}
	}
	if best < 30*size || best < 40 {
		if len(lines) > maxNear {
			return nil
		}
		at, size = 0, len(lines) // nothing is alike, but all of it can be shown
	}
	n := &Nearest{First: at + 1}
	for _, l := range lines[at : at+min(size, maxNear)] {
		n.Lines = append(n.Lines, termsafe.Clip(l, maxNearLine))
	}
	return n
}

// wordsOf are the words of a line, or its signs where it has no words.
func wordsOf(s string) []string {
	s = s[:min(len(s), 2000)]
	words := strings.FieldsFunc(s, func(r rune) bool {
		return !(r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r > 127)
	})
	if len(words) == 0 {
		return strings.Fields(s)
	}
	return words
}

// squeeze takes all white space out of a line.
func squeeze(s string) string { return strings.Join(strings.Fields(s), "") }

// describeMiss says what keeps the lines from being found.
func describeMiss(lines, old []string, near *Nearest) string {
	if near == nil {
		return "its lines are not in the file"
	}
	at := near.First - 1
	for i, l := range old {
		if at+i >= len(lines) {
			break
		}
		if lines[at+i] == l {
			continue
		}
		if squeeze(lines[at+i]) == squeeze(l) {
			return fmt.Sprintf("its lines are not in the file; line %d has other white space than the patch: %q, not %q",
				at+i+1, clip(lines[at+i]), clip(l))
		}
		return fmt.Sprintf("its lines are not in the file; line %d is %q and not %q", at+i+1, clip(lines[at+i]), clip(l))
	}
	return "its lines are not in the file"
}
