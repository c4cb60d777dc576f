package ingest

import (
	"html"
	"slices"
	"strings"

	"golang.org/x/tools/txtar"
)

// xmlFileAt recognises the beginning of a file in XML.
func xmlFileAt(line string) bool {
	name, _, rest, ok := xmlOpen(line)
	rest = strings.TrimSpace(rest)
	return ok && (name != "" || rest == "" || strings.HasPrefix(rest, "<path>"))
}

// xmlOpen reads <file path="…" …> at the beginning of a line, or behind the tag around all files: the path, the mode,
// and what follows on the tag.
func xmlOpen(line string) (path, mode, rest string, ok bool) {
	if around, more, found := strings.Cut(line, ">"); found && xmlName(strings.TrimPrefix(around, "<")) && strings.HasPrefix(strings.TrimLeft(more, " \t"), "<file") {
		line = strings.TrimLeft(more, " \t")
	}
	s, ok := strings.CutPrefix(line, "<file")
	if !ok || s == "" || !strings.ContainsRune(" \t/>", rune(s[0])) {
		return "", "", "", false
	}
	for {
		s = strings.TrimLeft(s, " \t")
		switch {
		case strings.HasPrefix(s, "/>"):
			return path, mode, s, path != ""
		case strings.HasPrefix(s, ">"):
			return path, mode, s[1:], true
		}
		key, value, found := strings.Cut(s, "=")
		value = strings.TrimLeft(value, " \t")
		if !found || value == "" || value[0] != '"' && value[0] != '\'' || strings.ContainsAny(key, "<>") {
			return "", "", "", false
		}
		value, s, found = strings.Cut(value[1:], value[:1])
		if !found {
			return "", "", "", false
		}
		switch strings.TrimSpace(key) {
		case "path", "name", "filename", "file":
			if path == "" {
				path = html.UnescapeString(value)
			}
		case "mode":
			mode = value
		}
	}
}

// xmlName reports whether s can be the name of a tag around files.
func xmlName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && r != '_' && r != '-' })
}

// xmlEnd finds the end of a file in a line: a </file> with nothing behind it but ends of the tags around, or another
// file.
func xmlEnd(line string) (text, after string, ok bool) {
	const end = "</file>"
	for at := 0; ; at += len(end) {
		i := strings.Index(line[at:], end)
		if i < 0 {
			return "", "", false
		}
		at += i
		after = strings.TrimSpace(line[at+len(end):])
		for {
			name, more, found := strings.Cut(strings.TrimPrefix(after, "</"), ">")
			if !found || !strings.HasPrefix(after, "</") || !xmlName(name) {
				break
			}
			after = strings.TrimSpace(more)
		}
		if after == "" || xmlFileAt(after) {
			return line[:at], after, true
		}
	}
}

// xml reads files in tags. What is between the tags is taken as it is, since models seldom escape it, unless it is a
// CDATA section, or can only be meant as escaped.
func (p *parser) xml(src source) {
	seen := false
	src.lines = slices.Clone(src.lines)
	for i := 0; i < len(src.lines); i++ {
		line := strings.TrimLeft(src.lines[i], " \t")
		path, mode, rest, ok := xmlOpen(line)
		if !ok {
			p.xmlStatement(strings.TrimSpace(line))
			continue
		}
		seen = true
		first := src.first + i
		lines, end, after, ok := xmlContent(src.lines, i, rest)
		if !ok {
			p.failIn(path, first, "the tag <file> that begins here has no </file>: the answer was cut off",
				"give the file again, whole")
			return
		}
		if i = end; after != "" {
			src.lines[i] = after // the next file begins in the same line
			i--
		}
		if path == "" {
			path, lines = xmlChildren(lines)
		}
		if path == "" {
			p.fail(first, "the tag <file> has no path", `write <file path="src/main.py">`)
			continue
		}
		f := File{Path: path, Content: []byte(xmlText(lines)), Line: first}
		if mode != "" {
			if f.Mode, ok = modeOf(mode); !ok {
				p.failIn(path, first, "invalid mode "+clip(mode), `write mode="0755"`)
			}
		}
		p.file(f)
	}
	if !seen {
		p.fail(src.first, "there is no file in the answer",
			`write <file path="src/main.py">, the content, and </file> in a line of its own`)
	}
}

// xmlContent are the lines up to </file>, with what follows upon that in its line.
func xmlContent(lines []string, i int, rest string) (content []string, end int, after string, ok bool) {
	if after, empty := strings.CutPrefix(rest, "/>"); empty {
		return nil, i, strings.TrimSpace(after), true
	}
	if text, after, found := xmlEnd(rest); found {
		if text == "" {
			return nil, i, after, true
		}
		return []string{text}, i, after, true
	}
	if strings.TrimSpace(rest) != "" {
		content = append(content, rest)
	}
	cdata := strings.HasPrefix(strings.TrimSpace(rest), "<![CDATA[")
	for j := i + 1; j < len(lines); j++ {
		line := strings.TrimRight(lines[j], " \t")
		if len(content) == 0 && strings.HasPrefix(strings.TrimSpace(line), "<![CDATA[") {
			cdata = true
		}
		text, after, closes := xmlEnd(line)
		if closes && cdata && !strings.HasSuffix(strings.TrimRight(text, " \t"), "]]>") && !lastCDATA(content) {
			closes = false // inside of the section
		}
		if !closes {
			content = append(content, lines[j])
			continue
		}
		if strings.TrimSpace(text) != "" {
			content = append(content, text)
		}
		return content, j, after, true
	}
	return nil, 0, "", false
}

func lastCDATA(content []string) bool {
	return len(content) > 0 && strings.HasSuffix(strings.TrimRight(content[len(content)-1], " \t"), "]]>")
}

// xmlChildren reads <path>…</path> and <content>…</content>.
func xmlChildren(lines []string) (path string, content []string) {
	text := strings.Join(lines, "\n")
	_, after, ok := strings.Cut(text, "<path>")
	if !ok {
		return "", nil
	}
	path, after, ok = strings.Cut(after, "</path>")
	if !ok {
		return "", nil
	}
	_, after, ok = strings.Cut(after, "<content>")
	end := strings.LastIndex(after, "</content>")
	if !ok || end < 0 {
		return "", nil
	}
	body := strings.TrimRight(strings.TrimPrefix(after[:end], "\n"), " \t")
	body = strings.TrimSuffix(body, "\n")
	if body == "" {
		return html.UnescapeString(strings.TrimSpace(path)), nil
	}
	return html.UnescapeString(strings.TrimSpace(path)), strings.Split(body, "\n")
}

// xmlText is the content of a file.
func xmlText(lines []string) string {
	text := joined(lines)
	if s, ok := strings.CutPrefix(strings.TrimSpace(text), "<![CDATA["); ok {
		if s, ok := strings.CutSuffix(s, "]]>"); ok {
			s = strings.ReplaceAll(strings.TrimPrefix(s, "\n"), "]]]]><![CDATA[>", "]]>")
			if s != "" && !strings.HasSuffix(s, "\n") {
				s += "\n"
			}
			return s
		}
	}
	if onlyEscaped(text) {
		return html.UnescapeString(text)
	}
	return text
}

// onlyEscaped reports whether a text has the five entities of XML, and nothing that would be an error in XML.
func onlyEscaped(text string) bool {
	if strings.ContainsAny(text, "<>") || !strings.Contains(text, "&") {
		return false
	}
	for rest := text; ; {
		_, after, ok := strings.Cut(rest, "&")
		if !ok {
			return true
		}
		name, _, ok := strings.Cut(after, ";")
		if !ok {
			return false
		}
		switch name {
		case "lt", "gt", "amp", "quot", "apos", "#39", "#34", "#10":
		default:
			return false
		}
		rest = after
	}
}

// xmlStatement reads <entrypoint>main.py</entrypoint> and the like.
func (p *parser) xmlStatement(line string) {
	if len(line) > 4200 || !strings.HasPrefix(line, "<") {
		return
	}
	name, rest, ok := strings.Cut(line[1:], ">")
	value, found := strings.CutSuffix(rest, "</"+name+">")
	value = html.UnescapeString(strings.TrimSpace(value))
	if !ok || !found || value == "" {
		return
	}
	switch name {
	case "entrypoint":
		p.out.Entrypoint = value
	case "language":
		p.out.Language = value
	case "dependency":
		p.out.Dependencies = append(p.out.Dependencies, value)
	}
}

// txtarName is the name in a line like -- src/main.py --, "" for any other line.
func txtarName(line string) string {
	s, ok := strings.CutPrefix(line, "-- ")
	if !ok {
		return ""
	}
	if s, ok = strings.CutSuffix(s, " --"); !ok {
		return ""
	}
	return strings.TrimSpace(s)
}

// txtar reads an archive as cmd/go and testscript have them. A file that was itself part of prose ends with the answer.
func (p *parser) txtar(src source) {
	a := txtar.Parse([]byte(src.text()))
	if len(a.Files) == 0 {
		p.fail(src.first, "there is no file in the answer", "a file begins with a line like -- src/main.py --")
		return
	}
	for line := range strings.Lines(string(a.Comment)) {
		p.statement(line)
	}
	line := src.first + strings.Count(string(a.Comment), "\n")
	for _, f := range a.Files {
		p.file(File{Path: f.Name, Content: f.Data, Line: line + 1})
		line += 1 + strings.Count(string(f.Data), "\n")
	}
}
