// Package ingest understands what a model answered: which files it handed over, or which changes to files, in whatever
// way models do that.
//
// [Parse] is pure: bytes in, an [Answer] out. [Answer.Program] settles what of it is run and how, [Answer.Apply] works
// out what a patch makes of the files it is for. Neither touches a disk. What does is [Save], which writes the files of
// an answer with a run file, and [Proposal], which brings a patch to a directory through package review: all of it or
// nothing, with the same rules as what comes out of a sandbox, and with undo.
//
// An answer is hostile. Paths follow the rules of a run file's; sizes and numbers are bounded as there; no input
// panics, hangs or takes more than a few times its own size in memory. What is wrong is an [Error] whose problems say
// where and what, so that the model can mend it. Nothing is guessed where two readings are possible: it is asked back
// instead.
package ingest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/hutch-run/hutch/host/runfile"
	"github.com/hutch-run/hutch/host/units"
	"github.com/hutch-run/hutch/sdk/safepath"
)

// MaxAnswer is how many bytes an answer may have.
const MaxAnswer = 64 << 20

// Format names one way in which models hand over files.
type Format string

// The formats.
const (
	JSON          Format = "json"           // {"files":[…]}, {"code":"…"} or {"path":"content"}
	Markdown      Format = "markdown"       // fenced blocks with names
	Diff          Format = "diff"           // unified diffs, git's too
	V4A           Format = "v4a"            // *** Begin Patch … *** End Patch
	SearchReplace Format = "search-replace" // <<<<<<< SEARCH … ======= … >>>>>>> REPLACE
	XML           Format = "xml"            // <file path="…">
	Txtar         Format = "txtar"          // -- path --
)

// Formats are all formats, in the order in which they are listed to users.
var Formats = []Format{JSON, Markdown, Diff, V4A, SearchReplace, XML, Txtar}

// readers read an answer in one format.
var readers = map[Format]func(*parser, source){
	JSON: (*parser).json, Markdown: (*parser).markdown, Diff: (*parser).diff, V4A: (*parser).v4a,
	SearchReplace: (*parser).searchReplace, XML: (*parser).xml, Txtar: (*parser).txtar,
}

// Answer is what an answer holds: files, or changes to files.
type Answer struct {
	Format Format
	// Files are whole files, sorted by path. A patch that only adds files has them too.
	Files []File
	// Changes are a patch, in its order; empty when the answer is no patch.
	Changes []Change

	// What the answer itself says about the program; "" and nil where it says nothing. See Program.
	Entrypoint   string
	Language     string
	Dependencies []string

	// Notes are what the answer's author may want to know, one clause each: what was left out, or read with good will.
	Notes []string

	assumed int // line of the block whose name is that of its language's main file; 0 for none
}

// File is one whole file.
type File struct {
	Path    string
	Mode    fs.FileMode // 0644 where the answer does not say
	Content []byte
	Line    int // of the answer, where it begins, from 1; 0 when that means nothing
}

// Op is what a Change does.
type Op string

// The operations.
const (
	Add    Op = "add"    // a new file; there must be none
	Update Op = "update" // changes the text of a file, its path, or its mode
	Delete Op = "delete" // removes a file
)

// Change is what a patch does to one file.
type Change struct {
	Op      Op
	Path    string
	To      string      // with Update: the path that it gets; "" keeps Path
	Mode    fs.FileMode // permissions afterwards; 0 when the patch does not say
	Content []byte      // with Add
	Hunks   []Hunk      // with Update, and with a Delete that says what is deleted
	Line    int         // of the answer, from 1
}

// Hunk replaces some lines by others, and is found by the lines it takes away and those around them.
type Hunk struct {
	Line    int      // of the answer, from 1
	Start   int      // line of the old file as the patch has it, from 1; 0 when it does not say
	Anchors []string // lines that come before, in order; V4A
	AtEnd   bool     // it is the end of the file; V4A
	Lines   []HunkLine
	// Whether the marker "\ No newline at end of file" stands after the last old and the last new line.
	OldNoEOL, NewNoEOL bool

	anywhere bool // it need not come after the one before it; SEARCH/REPLACE
	piece    bool // another part of the block before it; see [Hunk.pieces]
}

// HunkLine is one line of a hunk, without its newline.
type HunkLine struct {
	Op   byte // ' ', '-' or '+'
	Text string
}

// old are the lines that must be in the file.
func (h *Hunk) old() []string {
	var out []string
	for _, l := range h.Lines {
		if l.Op != '+' {
			out = append(out, l.Text)
		}
	}
	return out
}

// pieces are the parts of a SEARCH/REPLACE block between lines "...", which stand for lines left out, as aider takes
// them; nil without any, or when they do not belong together.
func (h *Hunk) pieces() (out []Hunk) {
	parts := map[byte][][]HunkLine{'-': {nil}, '+': {nil}}
	for _, l := range h.Lines {
		p := parts[l.Op]
		if strings.TrimSpace(l.Text) == "..." {
			parts[l.Op] = append(p, nil)
		} else if p != nil {
			p[len(p)-1] = append(p[len(p)-1], l)
		}
	}
	old, new := parts['-'], parts['+']
	if len(old) != len(new) || len(old) == 1 {
		return nil
	}
	for i := range old {
		switch {
		case len(old[i]) > 0:
			first := len(out) == 0
			out = append(out, Hunk{Line: h.Line, Lines: slices.Concat(old[i], new[i]), anywhere: first, piece: !first})
		case len(new[i]) > 0:
			return nil // nothing says where
		}
	}
	return out
}

// Parse reads an answer; format "" finds out which one it is. An error is an *Error.
func Parse(b []byte, format Format) (*Answer, error) {
	p := &parser{where: map[string]int{}}
	if len(b) > MaxAnswer {
		p.fail(0, fmt.Sprintf("the answer has %s; at most %s are read", units.FormatSize(int64(len(b))),
			units.FormatSize(MaxAnswer)),
			"")
		return nil, p.err()
	}
	b = bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))
	switch line, bad := firstBad(b); {
	case bad != "":
		p.fail(line, bad, asBase64)
	case len(bytes.TrimSpace(b)) == 0:
		p.fail(0, "the answer is empty", "")
	case format != "" && readers[format] == nil:
		p.fail(0, fmt.Sprintf("there is no format %q", format), "the formats are "+formatNames())
	}
	if len(p.problems) > 0 {
		return nil, p.err()
	}
	text := string(b)
	if n := strings.Count(text, "\n"); n > 0 && n == strings.Count(text, "\r\n") {
		text = strings.ReplaceAll(text, "\r\n", "\n") // it went through a system where lines end so
	}
	src := source{lines: strings.Split(strings.TrimSuffix(blankThoughts(text), "\n"), "\n"), first: 1}
	if format == "" {
		p.detect(src)
	} else {
		p.parse(src, format)
	}
	return p.finish()
}

func formatNames() string {
	var out []string
	for _, f := range Formats {
		out = append(out, string(f))
	}
	return strings.Join(out, ", ")
}

// asBase64 is the way for what is no text.
const asBase64 = `hand over what is no text as {"files":[{"path":"…","encoding":"base64","content":"…"}]}`

// firstBad finds what is no text: its line, and what it is; "" for nothing.
func firstBad(b []byte) (line int, what string) {
	at := bytes.IndexByte(b, 0)
	if what = "the answer holds a zero byte"; !utf8.Valid(b) {
		what = "the answer is not UTF-8"
		for at = 0; utf8.FullRune(b[at:]); {
			r, n := utf8.DecodeRune(b[at:])
			if r == utf8.RuneError && n == 1 {
				break
			}
			at += n
		}
	}
	if at < 0 {
		return 0, ""
	}
	return 1 + bytes.Count(b[:at], []byte("\n")), what
}

// blankThoughts empties the lines of what a model thought aloud before it answered, so that drafts in it do not count
// and line numbers stay.
func blankThoughts(s string) string {
	rest := strings.TrimLeft(s, " \t\n")
	for _, tag := range []string{"think", "thinking"} {
		if !strings.HasPrefix(rest, "<"+tag+">") {
			continue
		}
		if _, after, ok := strings.Cut(rest, "</"+tag+">"); ok {
			thought := s[:len(s)-len(after)]
			return strings.Repeat("\n", strings.Count(thought, "\n")) + after
		}
	}
	return s
}

// source is a piece of an answer, in lines without their ends.
type source struct {
	lines []string
	first int // number of the first line in the answer
}

func (s source) text() string { return strings.Join(s.lines, "\n") }

// parser collects what is found in an answer.
type parser struct {
	out      Answer
	problems []Problem
	more     int // problems beyond those kept
	paths    safepath.Set
	where    map[string]int // line of each path
	size     int64
	full     bool // a bound was passed, and said
}

func (p *parser) note(format string, args ...any) {
	const most = 50
	if len(p.out.Notes) < most {
		p.out.Notes = append(p.out.Notes, fmt.Sprintf(format, args...))
	}
}

// parse reads src as one format.
func (p *parser) parse(src source, format Format) {
	p.out.Format = format
	readers[format](p, src)
}

// file takes in a whole file.
func (p *parser) file(f File) {
	if f.Mode == 0 {
		f.Mode = 0o644
	}
	f.Path = inProject(f.Path)
	if err := p.paths.AddFile(f.Path); err != nil {
		p.badPath(err, f.Path, f.Line)
		return
	}
	p.where[f.Path] = f.Line
	p.size += int64(len(f.Content))
	switch {
	case p.full:
		return
	case len(p.out.Files) >= runfile.MaxFiles:
		p.full = true
		p.fail(f.Line, fmt.Sprintf("the answer has more than %d files", runfile.MaxFiles), "")
		return
	case len(f.Content) > runfile.MaxFileSize:
		p.failIn(f.Path, f.Line, "the file is larger than "+units.FormatSize(runfile.MaxFileSize), "")
		return
	case p.size > runfile.MaxFilesSize:
		p.full = true
		p.fail(f.Line, "the files are larger than "+units.FormatSize(runfile.MaxFilesSize)+" together", "")
		return
	}
	if n := placeholder(f.Content); n > 0 {
		p.note("%s: line %d looks like a placeholder for text that was left out", safepathQuote(f.Path), n)
	}
	p.out.Files = append(p.out.Files, f)
}

// inProject is a path as models write it who see the project at /workspace, relative to it.
func inProject(path string) string {
	for _, dir := range []string{"/workspace/input/", "/workspace/"} {
		if rest, ok := strings.CutPrefix(path, dir); ok {
			path = rest
			break
		}
	}
	for strings.HasPrefix(path, "./") {
		path = path[2:]
	}
	return path
}

// change takes in a part of a patch.
func (p *parser) change(c Change) {
	if p.full {
		return
	}
	c.Path, c.To = inProject(c.Path), inProject(c.To)
	for _, name := range []string{c.Path, c.To} {
		if name == "" && c.Path != "" {
			continue
		}
		if err := safepath.Check(name); err != nil {
			p.badPath(err, name, c.Line)
			return
		}
	}
	if len(p.out.Changes) >= runfile.MaxFiles {
		p.full = true
		p.fail(c.Line, fmt.Sprintf("the patch changes more than %d files", runfile.MaxFiles), "")
		return
	}
	p.out.Changes = append(p.out.Changes, c)
}

// finish checks what only shows at the end.
func (p *parser) finish() (*Answer, error) {
	changes := p.out.Changes
	if len(p.problems) == 0 && len(p.out.Files) == 0 && len(changes) == 0 {
		p.fail(0, "there is no file in the answer", howTo)
	}
	if len(p.problems) == 0 && !slices.ContainsFunc(changes, func(c Change) bool { return c.Op != Add }) {
		for _, c := range changes {
			p.file(File{Path: c.Path, Mode: c.Mode, Content: c.Content, Line: c.Line})
		}
	}
	if len(p.problems) > 0 {
		return nil, p.err()
	}
	p.out.Entrypoint = inProject(p.out.Entrypoint)
	slices.SortFunc(p.out.Files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return &p.out, nil
}

// howTo says what would have been understood.
const howTo = `hand over files as {"files":[{"path":"main.py","content":"…"}],"entrypoint":"main.py"}, or as Markdown ` +
	"blocks that begin with ```python path=main.py"

// mostProblems is how many problems of an answer are listed.
const mostProblems = 20

// Problem is one thing that is wrong with an answer, in words that its author can act on.
type Problem struct {
	Path    string   `json:"path,omitempty"` // the file that it is about
	Hunk    int      `json:"hunk,omitempty"` // which hunk or block of that file, from 1
	Line    int      `json:"line,omitempty"` // of the answer, from 1
	Message string   `json:"message"`
	Hint    string   `json:"hint,omitempty"`    // what to do about it
	Nearest *Nearest `json:"nearest,omitempty"` // what the file has that comes closest to what was looked for
}

// Nearest are lines of a file.
type Nearest struct {
	First int      `json:"first"` // number of the first one, from 1
	Lines []string `json:"lines"`
}

// Error shows all but the hint, on one line, and the nearest lines below it. Paths are quoted where they need it.
func (p *Problem) Error() string {
	var b strings.Builder
	if p.Line > 0 {
		fmt.Fprintf(&b, "line %d of the answer: ", p.Line)
	}
	if p.Path != "" {
		b.WriteString(safepathQuote(p.Path) + ": ")
	}
	if p.Hunk > 0 {
		fmt.Fprintf(&b, "hunk %d: ", p.Hunk)
	}
	b.WriteString(p.Message)
	if p.Nearest != nil {
		b.WriteString("; the nearest lines of the file are")
		for i, l := range p.Nearest.Lines {
			fmt.Fprintf(&b, "\n%6d  %s", p.Nearest.First+i, l)
		}
	}
	return b.String()
}

// Error says why an answer cannot be used. It has at least one problem.
type Error struct {
	Format   Format // "" when it was not recognised
	Problems []Problem
	More     int // problems beyond these
}

// Error shows the problems, one a line.
func (e *Error) Error() string {
	var lines []string
	for _, p := range e.Problems {
		lines = append(lines, p.Error())
	}
	if e.More > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", e.More))
	}
	return strings.Join(lines, "\n")
}

// ExitCode is that of a no: the answer cannot be used.
func (*Error) ExitCode() int { return 1 }

func (p *parser) problem(q Problem) {
	if len(p.problems) == mostProblems {
		p.more++
		return
	}
	p.problems = append(p.problems, q)
}

// fail adds a problem of a line of the answer; 0 for none. The hint may be empty.
func (p *parser) fail(line int, message, hint string) { p.failIn("", line, message, hint) }

// failIn is fail for a file.
func (p *parser) failIn(path string, line int, message, hint string) {
	p.problem(Problem{Path: path, Line: line, Message: message, Hint: hint})
}

func (p *parser) err() error { return &Error{p.out.Format, p.problems, p.more} }

// badPath says what is wrong with a path.
func (p *parser) badPath(err error, path string, line int) {
	var e *safepath.Error
	if !errors.As(err, &e) {
		p.failIn(path, line, err.Error(), "")
		return
	}
	q := Problem{Line: line, Message: fmt.Sprintf("the path %s %s", strconv.Quote(e.Path),
		strings.SplitN(e.Reason, ";", 2)[0]), Hint: "paths are relative to the directory of the files, as in src/main.py"}
	switch {
	case e.Kind == safepath.Empty:
		q.Message = "a file has no path"
	case e.Kind == safepath.Duplicate:
		q.Message, q.Hint = fmt.Sprintf("the file %s is there twice", strconv.Quote(e.Path)),
			"give each file once, as it shall be in the end"
		if first := p.where[e.Path]; first > 0 {
			q.Message += fmt.Sprintf("; the first one begins in line %d", first)
		}
	case e.Kind == safepath.Collision:
		q.Message, q.Hint = fmt.Sprintf("the paths %+q and %+q are the same where case or Unicode form does not count",
			e.Path, e.Other), "rename one"
	case e.Kind == safepath.Conflict:
		q.Message, q.Hint = fmt.Sprintf("the files %s and %s cannot both exist: %s", strconv.Quote(e.Path),
			strconv.Quote(e.Other), e.Reason), "rename one"
	case e.Clean != "":
		q.Hint = "write " + strconv.Quote(e.Clean)
	}
	p.problem(q)
}

// safepathQuote shows a path as it is when nothing in it could be taken for something else.
func safepathQuote(p string) string {
	if safepath.Check(p) != nil || strings.ContainsAny(p, " :\"'") {
		return strconv.Quote(p)
	}
	return p
}

// placeholder returns the number of the first line that stands for text which the author did not write out, such as
// "# ... rest of the code unchanged ...", or 0.
func placeholder(content []byte) int {
	n := 0
	for line := range strings.Lines(string(content)) {
		n++
		if len(line) > 200 || !strings.Contains(line, "...") && !strings.Contains(line, "…") {
			continue
		}
		text := strings.ToLower(strings.Trim(line, " \t\r\n#/*-<>!;%{}()[]"))
		if !strings.HasPrefix(text, "...") && !strings.HasPrefix(text, "…") {
			continue
		}
		for _, words := range []string{"existing code", "rest of", "unchanged", "remaining code", "same as before",
			"other code", "previous code"} {
			if strings.Contains(text, words) {
				return n
			}
		}
	}
	return 0
}

// detect finds the format of an answer and reads it. What comes first in the answer decides: within a file of one
// format there may be anything, the marks of other formats included. Fenced blocks without names are wrapping, and what
// is in them is looked at in the same way.
func (p *parser) detect(src source) {
	for i := 0; i < len(src.lines); i++ {
		if format := markAt(src.lines, i); format != "" {
			p.parse(src, format)
			return
		}
		if _, ok := openFence(src.lines[i]); ok {
			p.detectFences(source{src.lines[i:], src.first + i}, src)
			return
		}
		if line := strings.TrimSpace(src.lines[i]); strings.HasPrefix(line, "{") || strings.HasPrefix(line, "[") {
			if p.tryJSON(source{src.lines[i:], src.first + i}) {
				return
			}
		}
	}
	if strings.ContainsRune(src.text(), '{') && p.tryJSON(src) {
		return
	}
	p.fail(0, "no files were recognised in the answer", howTo+"; the formats are "+formatNames())
}

// tryJSON reads src as JSON, if there is an object in it that holds files, or one that would do if it were whole.
func (p *parser) tryJSON(src source) bool {
	doc, found := findJSON(src.text())
	if !found {
		return false
	}
	p.out.Format = JSON
	p.jsonFound(doc, src)
	return true
}

// markAt recognises the first line of a format that has one.
func markAt(lines []string, i int) Format {
	line := strings.TrimRight(lines[i], " \t")
	trimmed := strings.TrimLeft(line, " \t")
	switch {
	case v4aBegins(line):
		return V4A
	case searchMark(line) > 0:
		return SearchReplace
	case strings.HasPrefix(line, "diff --git "), diffHeaderAt(lines, i):
		return Diff
	case xmlFileAt(trimmed), artifactAt(trimmed):
		return XML
	case txtarName(line) != "":
		return Txtar
	}
	return ""
}

// detectFences reads an answer whose first mark is a fence: rest begins there.
func (p *parser) detectFences(rest, src source) {
	fences := scanFences(src)
	// SEARCH/REPLACE blocks are often fenced, with the name where that of a file would be.
	switch {
	case slices.ContainsFunc(fences, func(f fence) bool { return f.format() == SearchReplace }):
		p.parse(src, SearchReplace)
		return
	case slices.ContainsFunc(fences, func(f fence) bool { return f.name != "" }):
		p.parse(src, Markdown)
		return
	}
	byFormat := map[Format][]fence{}
	var order []Format
	for _, f := range fences {
		if format := f.format(); format != "" {
			if byFormat[format] == nil {
				order = append(order, format)
			}
			byFormat[format] = append(byFormat[format], f)
		}
	}
	switch {
	case len(order) > 1:
		p.fail(byFormat[order[1]][0].line, fmt.Sprintf("the answer has a block in the format %s and one in %s", order[0],
			order[1]),
			"hand over everything in one of them")
		return
	case len(order) == 1 && order[0] == JSON:
		p.fencedJSON(byFormat[JSON])
		return
	case len(order) == 1:
		for _, f := range byFormat[order[0]] {
			if !f.closed {
				p.fail(f.line, "the block that begins here has no end: the answer was cut off", "give it again, whole")
			}
			p.parse(source{f.lines, f.line + 1}, order[0])
		}
		return
	}
	// A mark may also come after a block that shows something else, such as a command to try.
	out := outside(fences)
	for i, line := range rest.lines {
		if !out(rest.first + i) {
			continue
		}
		format := markAt(rest.lines, i)
		if format == "" && strings.HasPrefix(strings.TrimSpace(line), "{") &&
			p.tryJSON(source{rest.lines[i:], rest.first + i}) {
			return
		}
		if format != "" {
			p.parse(source{rest.lines[i:], rest.first + i}, format)
			return
		}
	}
	p.parse(src, Markdown)
}

// fencedJSON takes the one block of several that holds files.
func (p *parser) fencedJSON(fences []fence) {
	var with []fence
	for _, f := range fences {
		if _, found := findJSON(source{f.lines, f.line + 1}.text()); found {
			with = append(with, f)
		}
	}
	if len(with) > 1 {
		p.out.Format = JSON
		p.fail(with[1].line, "the answer has several JSON objects with files", "give one object with all files")
		return
	}
	p.parse(source{with[0].lines, with[0].line + 1}, JSON)
}

// format is what a block without a name wraps; "" for what is no format by itself.
func (f *fence) format() Format {
	for i, line := range f.lines {
		if strings.TrimSpace(line) == "" {
			continue
		}
		if format := markAt(f.lines, i); format != "" {
			if f.name == "" || format == SearchReplace {
				return format
			}
			return ""
		}
		trimmed := strings.TrimSpace(line)
		if f.name == "" && (strings.HasPrefix(trimmed, "{") || strings.HasPrefix(trimmed, "[")) {
			if _, found := findJSON(strings.Join(f.lines[i:], "\n")); found {
				return JSON
			}
			return ""
		}
		// Prose or a path may stand before a patch, and nothing else.
		if searchIn(f.lines[i:]) {
			return SearchReplace
		}
		if f.name == "" && (f.lang == "diff" || f.lang == "patch" || strings.HasPrefix(trimmed, "apply_patch")) {
			continue
		}
		return ""
	}
	return ""
}

// searchIn reports whether lines hold a whole SEARCH/REPLACE block that nothing but its path comes before.
func searchIn(lines []string) bool {
	return len(lines) > 1 && namedBy(lines[0]) != "" && searchMark(lines[1]) > 0
}

// outside returns a function that reports, for ascending lines, whether they are in no block.
func outside(fences []fence) func(line int) bool {
	return func(line int) bool {
		for len(fences) > 0 && line > fences[0].line+len(fences[0].lines)+1 {
			fences = fences[1:]
		}
		return len(fences) == 0 || line < fences[0].line
	}
}
