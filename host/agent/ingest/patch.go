package ingest

import (
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// v4a reads the patches of OpenAI's apply_patch tool:
//
//	*** Begin Patch
//	*** Update File: src/main.py
//	*** Move to: src/app.py
//	@@ def main():
//	 context
//	-old
//	+new
//	*** Add File: notes.txt
//	+text
//	*** Delete File: old.txt
//	*** End Patch
func (p *parser) v4a(src source) {
	begun, ended := false, false
	last := len(src.lines) - 1 // the end of the patch, which may be padded
	for last >= 0 && strings.TrimSpace(src.lines[last]) != "*** End Patch" {
		last--
	}
	var c *Change
	flush := func() {
		if c != nil {
			p.v4aChange(*c)
		}
		c = nil
	}
	hunk := func(at int, fresh bool) *Hunk { // the last one, or a new one
		if n := len(c.Hunks); n == 0 || fresh && len(c.Hunks[n-1].Lines) > 0 {
			c.Hunks = append(c.Hunks, Hunk{Line: at})
		}
		return &c.Hunks[len(c.Hunks)-1]
	}
	for i, line := range src.lines {
		at := src.first + i
		mark := line
		if c == nil || c.Op != Update || i == last { // in an update, a blank begins a line of the file
			mark = strings.TrimSpace(line)
		}
		op, name, header := v4aHeader(mark)
		switch {
		case strings.HasPrefix(mark, "*** Begin Patch"):
			flush()
			begun, ended = true, false
		case strings.HasPrefix(mark, "*** End Patch"):
			flush()
			ended = true
		case header && !ended:
			flush()
			begun = true
			c = &Change{Op: op, Path: name, Line: at}
		case c == nil:
			if begun && !ended && strings.TrimSpace(line) != "" {
				p.fail(at, "this line belongs to no file",
					"begin with *** Update File: PATH, *** Add File: PATH or *** Delete File: PATH")
				return
			}
		case strings.HasPrefix(line, "*** Move to: "):
			c.To = strings.TrimSpace(strings.TrimPrefix(line, "*** Move to: "))
			if c.Op != Update {
				p.failIn(c.Path, at, "only a file that is updated can be moved", "")
			}
		case strings.HasPrefix(line, "*** End of File"):
			if len(c.Hunks) > 0 {
				hunk(at, false).AtEnd = true
			}
		case c.Op == Add:
			text, ok := strings.CutPrefix(line, "+")
			if !ok && strings.TrimSpace(line) != "" {
				p.failIn(c.Path, at, "all lines of a new file begin with +", "")
				return
			}
			if ok {
				c.Content = append(append(c.Content, text...), '\n')
			}
		case c.Op == Delete:
			if strings.TrimSpace(line) != "" {
				p.failIn(c.Path, at, "nothing follows on *** Delete File", "")
				return
			}
		case strings.HasPrefix(line, "@@"):
			anchor := strings.TrimSpace(strings.TrimPrefix(line, "@@"))
			anchor = strings.TrimSpace(strings.TrimSuffix(anchor, "@@"))
			h := hunk(at, true)
			if anchor != "" && !strings.HasPrefix(anchor, "-") { // @@ -1,2 +1,2 @@ says nothing here
				h.Anchors = append(h.Anchors, anchor)
			}
		default:
			h := hunk(at, false)
			if line == "" {
				line = " "
			}
			if line[0] != ' ' && line[0] != '+' && line[0] != '-' {
				p.failIn(c.Path, at, "a line of a hunk begins with a blank, + or -", "")
				return
			}
			h.Lines = append(h.Lines, HunkLine{line[0], line[1:]})
		}
	}
	if c != nil || begun && !ended {
		line := src.first + len(src.lines) - 1
		p.fail(line, "the patch has no *** End Patch: the answer was cut off", "give it again, whole")
		return
	}
	if !begun {
		p.fail(src.first, "there is no patch in the answer", "a patch begins with *** Begin Patch")
	}
}

func v4aHeader(line string) (op Op, name string, ok bool) {
	rest, ok := strings.CutPrefix(line, "*** ")
	verb, name, ok2 := strings.Cut(rest, " File: ")
	ok = ok && ok2 && (verb == "Add" || verb == "Update" || verb == "Delete")
	return Op(strings.ToLower(verb)), strings.TrimSpace(name), ok
}

// v4aBegins recognises the first line of a patch.
func v4aBegins(line string) bool {
	line = strings.TrimSpace(line)
	_, _, header := v4aHeader(line)
	return header || strings.HasPrefix(line, "*** Begin Patch")
}

func (p *parser) v4aChange(c Change) {
	for i := range c.Hunks {
		h := &c.Hunks[i]
		// An empty line at the end of a section stands between it and the next.
		n := len(h.Lines)
		for n > 0 && h.Lines[n-1] == (HunkLine{' ', ""}) && i == len(c.Hunks)-1 && !h.AtEnd {
			n--
		}
		h.Lines = h.Lines[:n]
		h.OldNoEOL = true // the file ends with a newline afterwards
		h.AtEnd = h.AtEnd || len(h.old()) == 0 && len(h.Anchors) == 0
		if len(h.Lines) == 0 {
			p.problem(Problem{Path: c.Path, Hunk: i + 1, Line: h.Line, Message: "the hunk has no lines"})
			return
		}
	}
	switch {
	case c.Op == Update && len(c.Hunks) == 0 && c.To == "":
		p.failIn(c.Path, c.Line, "the update changes nothing", "give hunks: @@, then lines that begin with a blank, - or +")
		return
	case c.Op == Add && c.Content == nil:
		c.Content = []byte{}
	}
	p.change(c)
}

// searchMark is the length of the mark in a line like <<<<<<< SEARCH, or ------- SEARCH as Cline has it; 0 for any
// other line.
func searchMark(line string) int {
	line = strings.TrimRight(line, " \t")
	n := len(line) - len(strings.TrimLeft(line, "<"))
	if n == 0 {
		n = len(line) - len(strings.TrimLeft(line, "-"))
	}
	if n < 5 || n > 9 || line[n:] != " SEARCH" && line[n:] != " ORIGINAL" {
		return 0
	}
	return n
}

// replaceMark recognises the end of a block that began with n marks.
func replaceMark(line string, n int) bool {
	line = strings.TrimRight(line, " \t")
	rest := strings.TrimLeft(line, ">")
	if rest == line {
		rest = strings.TrimLeft(line, "+")
	}
	return len(line)-len(rest) == n && (rest == " REPLACE" || rest == " UPDATED")
}

// pathTags are around a path in Cline's form.
var pathTags = strings.NewReplacer("<path>", "", "</path>", "")

// searchForm is what a block looks like, for messages.
const searchForm = "a block is <<<<<<< SEARCH, old lines, =======, new lines, >>>>>>> REPLACE"

// searchReplace reads blocks like these, in fences or without, each with its path in a line before it; one without a
// path is for the file of the block before.
//
//	src/main.py
//	<<<<<<< SEARCH
//	old lines
//	=======
//	new lines
//	>>>>>>> REPLACE
func (p *parser) searchReplace(src source) {
	path, seen := "", false
	var order []string
	byPath := map[string]*Change{}
	for i := 0; i < len(src.lines); i++ {
		line := src.lines[i]
		n := searchMark(line)
		if n == 0 {
			if f, ok := openFence(line); ok {
				f.identify("")
				if f.name != "" {
					path = f.name
				}
			} else if name := namedBy(pathTags.Replace(line)); name != "" {
				path = name
			}
			continue
		}
		seen = true
		first := src.first + i
		middle, end := -1, -1
		for j := i + 1; j < len(src.lines) && end < 0; j++ {
			switch l := strings.TrimRight(src.lines[j], " \t"); {
			case middle < 0 && len(l) == n && strings.Trim(l, "=") == "":
				middle = j
			case middle >= 0 && replaceMark(l, n):
				end = j
			case searchMark(l) == n:
				j = len(src.lines) // the next one begins
			}
		}
		switch {
		case middle < 0:
			p.failIn(path, first, "the block has no line "+strings.Repeat("=", n)+" between the old and the new text",
				searchForm)
			return
		case end < 0:
			p.failIn(path, first, "the block has no line "+strings.Repeat(">", n)+" REPLACE at its end: the answer was cut off",
				searchForm)
			return
		case path == "":
			p.fail(first, "nothing says which file the block is for", "write the path in a line of its own before the block")
			return
		}
		h := Hunk{Line: first, anywhere: true}
		for _, l := range src.lines[i+1 : middle] {
			h.Lines = append(h.Lines, HunkLine{'-', l})
		}
		for _, l := range src.lines[middle+1 : end] {
			h.Lines = append(h.Lines, HunkLine{'+', l})
		}
		if byPath[path] == nil {
			byPath[path] = &Change{Op: Update, Path: path, Line: first}
			order = append(order, path)
		}
		byPath[path].Hunks = append(byPath[path].Hunks, h)
		i = end
	}
	if !seen {
		p.fail(src.first, "there is no block in the answer",
			searchForm)
	}
	for _, name := range order {
		c := *byPath[name]
		if h := c.Hunks[0]; len(h.old()) == 0 && len(c.Hunks) == 1 {
			c.Op, c.Hunks, c.Content = Add, nil, []byte{}
			for _, l := range h.Lines {
				c.Content = append(append(c.Content, l.Text...), '\n')
			}
		}
		p.change(c)
	}
}

// diffHeaderAt recognises the two lines that name a file in a unified diff, with a hunk below them.
func diffHeaderAt(lines []string, i int) bool {
	return i+2 < len(lines) && diffNamesAt(lines, i) && strings.HasPrefix(lines[i+2], "@@")
}

// diffReader reads a unified diff. Models count badly, so the numbers of a hunk's header count where they are right,
// and else the hunk ends where the next thing begins.
type diffReader struct {
	p   *parser
	src source
	i   int
}

func (p *parser) diff(src source) {
	r := &diffReader{p: p, src: src}
	seen := false
	for r.i < len(src.lines) {
		line := src.lines[r.i]
		switch {
		case strings.HasPrefix(line, "diff --git "):
			r.git()
			seen = true
		case diffNamesAt(src.lines, r.i):
			r.plain()
			seen = true
		case strings.HasPrefix(line, "@@ ") && !seen:
			p.fail(r.line(), "a hunk comes before any line that says which file it is for",
				"begin with --- a/PATH and +++ b/PATH")
			return
		default:
			r.i++
		}
	}
	if !seen {
		p.fail(src.first, "there is no diff in the answer",
			"a diff of a file begins with --- a/PATH and +++ b/PATH, and its hunks with @@ -1,2 +1,3 @@")
	}
}

func (r *diffReader) line() int { return r.src.first + r.i }

// plain reads a file of a diff without git's header.
func (r *diffReader) plain() {
	c := Change{Op: Update, Line: r.line()}
	from, to, err := headerNames(r.src.lines[r.i], r.src.lines[r.i+1])
	if err != nil {
		r.p.fail(r.line(), err.Error(), "")
	}
	r.i += 2
	c.Hunks = r.hunks()
	switch {
	case err != nil:
		return
	case from == "" && to == "":
		r.p.fail(c.Line, "both sides of the diff are /dev/null", "")
		return
	case from == "":
		c.Op, c.Path = Add, to
	case to == "":
		c.Op, c.Path = Delete, from
	default:
		c.Path = to
		if from != to {
			c.Path, c.To = from, to
		}
	}
	r.take(c)
}

// take finishes a change: what adds a file has its content in its only hunk.
func (r *diffReader) take(c Change) {
	if c.Op == Add {
		c.Content = []byte{}
		for i, h := range c.Hunks {
			for _, l := range h.Lines {
				if l.Op != '+' {
					r.p.problem(Problem{Path: c.Path, Hunk: i + 1, Line: h.Line,
						Message: "the file is new, so all lines of its hunk begin with +"})
					return
				}
				c.Content = append(append(c.Content, l.Text...), '\n')
			}
			if h.NewNoEOL {
				c.Content = bytes.TrimSuffix(c.Content, []byte("\n"))
			}
		}
		c.Hunks = nil
	}
	if c.Op == Update && len(c.Hunks) == 0 && c.To == "" && c.Mode == 0 {
		r.p.failIn(c.Path, c.Line, "the diff of the file has no hunk", "a hunk begins with a line like @@ -1,2 +1,3 @@")
		return
	}
	r.p.change(c)
}

// headerNames are the names in --- and +++ lines, "" for /dev/null.
func headerNames(old, new string) (from, to string, err error) {
	if from, err = headerName(strings.TrimPrefix(old, "--- ")); err != nil {
		return
	}
	if to, err = headerName(strings.TrimPrefix(new, "+++ ")); err != nil {
		return
	}
	a, okA := strings.CutPrefix(from, "a/")
	b, okB := strings.CutPrefix(to, "b/")
	if (okA || from == "/dev/null") && (okB || to == "/dev/null") {
		from, to = a, b
	}
	if from == "/dev/null" {
		from = ""
	}
	if to == "/dev/null" {
		to = ""
	}
	return from, to, nil
}

// headerName is a name with what may follow it, or in quotes.
func headerName(s string) (string, error) {
	if strings.HasPrefix(s, `"`) {
		quoted, err := strconv.QuotedPrefix(s)
		if err == nil {
			quoted, err = strconv.Unquote(quoted)
		}
		if err != nil {
			return "", fmt.Errorf("the quoted name %s cannot be read", clip(s))
		}
		return quoted, nil
	}
	s, _, _ = strings.Cut(s, "\t") // a time may follow
	return strings.TrimRight(s, " "), nil
}

// git reads a file of a diff with git's header.
func (r *diffReader) git() {
	c := Change{Op: Update, Line: r.line()}
	gitLine := strings.TrimPrefix(r.src.lines[r.i], "diff --git ")
	r.i++
	var from, to string
	var named, bad bool
	refuse := func(hint, format string, args ...any) {
		bad = true
		r.p.failIn(c.Path, r.line(), fmt.Sprintf(format, args...), hint)
	}
header:
	for ; r.i < len(r.src.lines); r.i++ {
		line := r.src.lines[r.i]
		key, _, _ := strings.Cut(line, " ")
		switch {
		case diffNamesAt(r.src.lines, r.i):
			var err error
			if from, to, err = headerNames(line, r.src.lines[r.i+1]); err != nil {
				refuse("", "%s", err)
			}
			named = true
			r.i += 2
			break header
		case strings.HasPrefix(line, "new file mode "):
			c.Op = Add
			c.Mode = r.mode(strings.TrimPrefix(line, "new file mode "), &bad)
		case strings.HasPrefix(line, "deleted file mode "):
			c.Op = Delete
		case strings.HasPrefix(line, "new mode "):
			c.Mode = r.mode(strings.TrimPrefix(line, "new mode "), &bad)
		case strings.HasPrefix(line, "rename from "):
			from, _ = headerName(strings.TrimPrefix(line, "rename from "))
			named = true
		case strings.HasPrefix(line, "rename to "):
			to, _ = headerName(strings.TrimPrefix(line, "rename to "))
			named = true
		case strings.HasPrefix(line, "copy from "):
			refuse("give the copy as a new file", "the diff copies a file")
		case strings.HasPrefix(line, "copy to "): // the other half
		case strings.HasPrefix(line, "GIT binary patch"), strings.HasPrefix(line, "Binary files "):
			refuse(asBase64, "the diff of a file that is no text cannot be used")
		case key == "index", key == "similarity", key == "dissimilarity", strings.HasPrefix(line, "old mode "):
		default:
			break header
		}
	}
	if !named {
		if from = gitName(gitLine); from == "" {
			if !bad {
				r.p.fail(c.Line, "the line diff --git does not name one file", "write diff --git a/PATH b/PATH")
			}
			bad = true
		}
		to = from
	}
	c.Hunks = r.hunks()
	switch {
	case bad:
		return
	case c.Op == Add || from == "":
		c.Op, c.Path = Add, to
	case c.Op == Delete || to == "":
		c.Op, c.Path = Delete, from
		if c.Path == "" {
			c.Path = to
		}
	default:
		c.Path = from
		if to != from {
			c.To = to
		}
	}
	r.take(c)
}

// mode reads one of git's modes of files.
func (r *diffReader) mode(s string, bad *bool) fs.FileMode {
	switch strings.TrimSpace(s) {
	case "100644":
		return 0o644
	case "100755":
		return 0o755
	}
	what := "has the mode " + strconv.Quote(clip(s)) + ", and only 100644 and 100755 are files"
	switch {
	case strings.HasPrefix(s, "120000"):
		what = "is a symbolic link"
	case strings.HasPrefix(s, "160000"):
		what = "is a submodule"
	}
	*bad = true
	r.p.fail(r.line(), "what the diff makes "+what, "only files can be handed over")
	return 0
}

// gitName is the name in "a/NAME b/NAME", "" when the two differ.
func gitName(s string) string {
	if strings.HasPrefix(s, `"`) {
		name, err := headerName(s)
		if err != nil {
			return ""
		}
		return strings.TrimPrefix(name, "a/")
	}
	// The name may hold " b/" itself: both halves are equal.
	a, b := s[:len(s)/2], s[len(s)/2:]
	if name, ok := strings.CutPrefix(a, "a/"); ok && name != "" && b == " b/"+name {
		return name
	}
	return ""
}

// hunks reads the hunks of one file.
func (r *diffReader) hunks() []Hunk {
	var out []Hunk
	for r.i < len(r.src.lines) {
		line := r.src.lines[r.i]
		if !strings.HasPrefix(line, "@@") {
			if strings.TrimSpace(line) == "" && r.i+1 < len(r.src.lines) && strings.HasPrefix(r.src.lines[r.i+1], "@@") {
				r.i++
				continue
			}
			break
		}
		h := Hunk{Line: r.line()}
		start, oldLines, newLines, counted := hunkHeader(line)
		h.Start = start
		r.i++
		n, exact := 0, false
		if counted {
			n, exact = r.counted(oldLines, newLines)
		}
		if !exact {
			n = r.bounded()
		}
		o, w := r.body(&h, r.src.lines[r.i:r.i+n])
		r.i += n
		if counted && (o != oldLines || w != newLines) {
			r.p.note("hunk in line %d of the answer: its header counts %d old and %d new lines, it has %d and %d",
				h.Line, oldLines, newLines, o, w)
		}
		if len(h.Lines) == 0 {
			r.p.fail(h.Line, "the hunk has no lines", "")
			continue
		}
		out = append(out, h)
	}
	return out
}

var hunkNumbers = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^@@\s+-(\d{1,9})(?:,(\d{1,9}))?\s+\+\d{1,9}(?:,(\d{1,9}))?\s+@@`)
})

// hunkHeader reads @@ -1,2 +3,4 @@. Some leave the numbers out: then nothing is counted.
func hunkHeader(line string) (start, oldLines, newLines int, counted bool) {
	m := hunkNumbers().FindStringSubmatch(line)
	if m == nil {
		return 0, 0, 0, false
	}
	start, _ = strconv.Atoi(m[1])
	oldLines, _ = strconv.Atoi(cmp.Or(m[2], "1"))
	newLines, _ = strconv.Atoi(cmp.Or(m[3], "1"))
	if oldLines == 0 {
		start++ // the line after which something comes
	}
	return start, oldLines, newLines, true
}

// counted is how many lines a hunk has according to its header; exact says that this can be: the lines are there, and
// what follows is no line of a hunk.
func (r *diffReader) counted(oldLines, newLines int) (n int, exact bool) {
	lines := r.src.lines[r.i:]
	for n < len(lines) && (oldLines > 0 || newLines > 0) {
		switch line := lines[n]; {
		case line == "" || line[0] == ' ' || line == "\r":
			oldLines--
			newLines--
		case line[0] == '-':
			oldLines--
		case line[0] == '+':
			newLines--
		case line[0] == '\\':
		default:
			return 0, false
		}
		n++
	}
	for n < len(lines) && strings.HasPrefix(lines[n], `\`) {
		n++
	}
	if oldLines != 0 || newLines != 0 {
		return 0, false
	}
	if n == len(lines) || lines[n] == "-- " || diffNamesAt(lines, n) {
		return n, true
	}
	next := lines[n]
	return n, next == "" || next[0] != ' ' && next[0] != '+' && next[0] != '-'
}

func diffNamesAt(lines []string, i int) bool {
	return i+1 < len(lines) && strings.HasPrefix(lines[i], "--- ") && strings.HasPrefix(lines[i+1], "+++ ")
}

// bounded is how many lines a hunk has when its header is not to be believed.
func (r *diffReader) bounded() int {
	lines := r.src.lines[r.i:]
	n := 0
	for n < len(lines) && !diffHeaderAt(lines, n) &&
		(lines[n] == "" || lines[n] == "\r" || strings.IndexByte(" +-\\", lines[n][0]) >= 0) {
		n++
	}
	for n > 0 && strings.TrimRight(lines[n-1], "\r") == "" { // what follows the hunk, and no context
		n--
	}
	return n
}

// body takes in the lines of a hunk and counts them.
func (r *diffReader) body(h *Hunk, lines []string) (oldLines, newLines int) {
	last := byte(0)
	for _, line := range lines {
		if line == "" {
			line = " " // editors and models take away the blank of an empty line
		}
		switch op := line[0]; op {
		case '\\':
			h.OldNoEOL = h.OldNoEOL || last == '-' || last == ' '
			h.NewNoEOL = h.NewNoEOL || last == '+' || last == ' '
			continue
		case ' ', '-', '+':
			last = op
			h.Lines = append(h.Lines, HunkLine{op, line[1:]})
		default:
			last = ' '
			h.Lines = append(h.Lines, HunkLine{' ', line}) // a carriage return alone
		}
		if last != '+' {
			oldLines++
		}
		if last != '-' {
			newLines++
		}
	}
	return oldLines, newLines
}
