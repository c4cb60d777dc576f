package ingest

import (
	"fmt"
	"strings"
)

// fence is a fenced block of Markdown.
type fence struct {
	line   int // of its opening, in the answer
	info   string
	lang   string // first word of the info string, in lower case; "" for none
	name   string // path that it is named with; "" for none
	lines  []string
	closed bool

	indent, count int
	char          byte
	prefixed      bool // the name is in the first line of a file that has no comments, and is no part of it
}

// openFence reads the line that opens a block. Unlike CommonMark any indentation will do: blocks stand in lists.
func openFence(line string) (fence, bool) {
	rest := strings.TrimLeft(line, " \t")
	f := fence{indent: len(line) - len(rest)}
	if rest == "" || rest[0] != '`' && rest[0] != '~' {
		return f, false
	}
	f.char = rest[0]
	f.count = len(rest) - len(strings.TrimLeft(rest, string(f.char)))
	f.info = strings.TrimSpace(rest[f.count:])
	if f.count < 3 || f.char == '`' && strings.ContainsRune(f.info, '`') {
		return f, false
	}
	return f, true
}

// scanFences finds the blocks of a text, and their names.
func scanFences(src source) []fence {
	var out []fence
	work := maxWork / 10
	before := -1 // index of the last line outside of blocks that is not blank
	for i := 0; i < len(src.lines); i++ {
		f, ok := openFence(src.lines[i])
		if !ok {
			if strings.TrimSpace(src.lines[i]) != "" {
				before = i
			}
			continue
		}
		f.line = src.first + i
		end := closing(src.lines, i, f, &work)
		balanced := end >= 0
		if !balanced {
			end = closing(src.lines, i, f, nil)
		}
		if f.closed = end >= 0; !f.closed {
			end = len(src.lines)
		}
		if !balanced && f.closed {
			f.closed = !holdsNamed(src.lines[i+1 : end])
		}
		for _, line := range src.lines[i+1 : end] {
			f.lines = append(f.lines, unindent(line, f.indent))
		}
		above := ""
		if before >= 0 && i-before <= 2 {
			above = src.lines[before]
		}
		f.identify(above)
		out = append(out, f)
		before = -1
		i = end
	}
	return out
}

// closing finds the line that closes the block opened in line i, or -1. A fence with an info string cannot close
// anything. With nested, which counts down the lines that may be looked at in that way, it opens a block inside, as
// models write them where they should have used a longer fence outside; CommonMark would end the outer block with the
// inner one.
func closing(lines []string, i int, f fence, nested *int) int {
	depth := 0
	for j := i + 1; j < len(lines); j++ {
		if nested != nil {
			if *nested--; *nested < 0 {
				return -1
			}
		}
		g, ok := openFence(lines[j])
		switch {
		case !ok || g.char != f.char || g.count < f.count:
		case g.info != "":
			if nested != nil && g.count == f.count {
				depth++
			}
		case depth > 0:
			depth--
		default:
			return j
		}
	}
	return -1
}

// holdsNamed reports whether a block whose inner fences do not pair up swallowed one with a name: then its own end is
// missing.
func holdsNamed(lines []string) bool {
	for _, line := range lines {
		if f, ok := openFence(line); ok && f.info != "" {
			if f.identify(""); f.name != "" {
				return true
			}
		}
	}
	return false
}

func unindent(line string, n int) string {
	for n > 0 && line != "" && (line[0] == ' ' || line[0] == '\t') {
		line, n = line[1:], n-1
	}
	return line
}

// markdown reads an answer of named blocks. Blocks without a name are left out, unless the only block of a program is
// one: then it is the language's main file.
func (p *parser) markdown(src source) {
	fences := scanFences(src)
	var program []fence
	named := 0
	for _, f := range fences {
		if f.name == "" {
			if _, ok := languageOf(f.lang); ok {
				program = append(program, f)
			}
			continue
		}
		named++
		p.block(f)
	}
	p.prose(src, fences)
	shell := func(f fence) bool { l, _ := languageOf(f.lang); return l.Name == "shell" }
	if named == 0 {
		var rest []fence
		for _, f := range program {
			if !shell(f) {
				rest = append(rest, f)
			}
		}
		if len(rest) == 0 && len(program) == 1 {
			rest = program // a script
		}
		if len(rest) == 1 {
			f := rest[0]
			l, _ := languageOf(f.lang)
			f.name = "main" + l.Extensions[0]
			p.block(f)
			if p.out.Language == "" {
				p.out.Language = l.Name
			}
			return
		}
	}
	for _, f := range fences {
		if f.name != "" {
			continue
		}
		what := "without a name"
		if f.lang != "" && f.lang != citation {
			what = fmt.Sprintf("(%.20s) without a name", f.lang)
		}
		p.note("the block %s in line %d was left out", what, f.line)
	}
	switch {
	case named > 0:
	case len(program) > 1:
		p.fail(program[1].line, fmt.Sprintf("%d blocks of code have no file name", len(program)),
			"name each one in the line that opens it: ```python path=src/main.py")
	case len(fences) > 0:
		p.fail(fences[0].line, "no block of the answer has a file name",
			"name each one in the line that opens it: ```python path=src/main.py")
	}
}

// block takes in a named block.
func (p *parser) block(f fence) {
	if !f.closed {
		p.failIn(f.name, f.line, "the block that begins here has no end: the answer was cut off, or a fence is missing",
			"give the file again, whole; around a file that holds fences itself, use a longer fence")
		return
	}
	lines := f.lines
	if f.prefixed {
		lines = lines[1:]
	}
	p.file(File{Path: f.name, Content: []byte(joined(lines)), Line: f.line + 1})
}

// joined puts lines together, each with its end.
func joined(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return strings.Join(lines, "\n") + "\n"
}

// prose finds lines like "Entrypoint: main.py" between blocks.
func (p *parser) prose(src source, fences []fence) {
	next := 0
	for i := 0; i < len(src.lines); i++ {
		if next < len(fences) && src.first+i == fences[next].line {
			i += len(fences[next].lines) + 1
			next++
			continue
		}
		p.statement(src.lines[i])
	}
}

// statement reads a line that says something about the program.
func (p *parser) statement(line string) {
	if len(line) > 2000 {
		return
	}
	key, value, ok := strings.Cut(strings.Trim(line, " \t\r\n#*_-"), ":")
	if !ok {
		return
	}
	value = strings.Trim(value, " \t*_`")
	if value == "" {
		return
	}
	switch strings.ToLower(strings.Trim(key, " *_`")) {
	case "entrypoint", "entry point":
		if !strings.ContainsAny(value, " \t") && p.out.Entrypoint == "" {
			p.out.Entrypoint = value
		}
	case "language":
		if l, ok := languageOf(value); ok && p.out.Language == "" {
			p.out.Language = l.Name
		}
	case "dependencies":
		if p.out.Dependencies != nil {
			return
		}
		for d := range strings.SplitSeq(value, ",") {
			d = strings.Trim(d, " \t`")
			if strings.ContainsAny(d, " \t") || d == "" || strings.EqualFold(d, "none") {
				p.out.Dependencies = nil // a sentence
				return
			}
			p.out.Dependencies = append(p.out.Dependencies, d)
		}
	}
}
