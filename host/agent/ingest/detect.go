package ingest

import (
	"fmt"
	"slices"
	"strings"
)

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
	case xmlFileAt(trimmed):
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
		p.fail(byFormat[order[1]][0].line, fmt.Sprintf("the answer has a block in the format %s and one in %s", order[0], order[1]),
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
		if format == "" && strings.HasPrefix(strings.TrimSpace(line), "{") && p.tryJSON(source{rest.lines[i:], rest.first + i}) {
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
