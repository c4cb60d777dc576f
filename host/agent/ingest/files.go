package ingest

import (
	"cmp"
	"fmt"
	"html"
	"regexp"
	"strings"
	"sync"

	"golang.org/x/tools/txtar"
)

// The tags of files. One begins a line, perhaps behind the tag around all files, or follows on another one. What ends
// it has nothing behind it but ends of the tags around, or another file: </file> may be in its content as well.
const (
	xmlTag = `(?m)^[ \t]*(?:<[A-Za-z_-]+>[ \t]*)?<file((?:[ \t]+[\w-]+[ \t]*=[ \t]*(?:"[^"]*"|'[^']*'))*)[ \t]*(/?)>`
	xmlEnd = `(?m)</file>((?:[ \t]*</[A-Za-z_-]+>)*[ \t]*)(?:$|<file[ \t>])`
	// What has entities of XML, and nothing that would be an error in XML.
	xmlEscaped = `^[^<>&]*(?:&(?:lt|gt|amp|quot|apos|#39|#34|#10);[^<>&]*)+$`
)

var xmlForms = sync.OnceValue(func() (f struct{ open, attribute, end, endOfCDATA, children, escaped *regexp.Regexp }) {
	f.open, f.attribute = regexp.MustCompile(xmlTag), regexp.MustCompile(`([\w-]+)[ \t]*=[ \t]*(?:"([^"]*)"|'([^']*)')`)
	f.end = regexp.MustCompile(xmlEnd)
	f.endOfCDATA = regexp.MustCompile(`(?m)\]\]>\s*` + strings.TrimPrefix(xmlEnd, "(?m)"))
	f.children = regexp.MustCompile(`(?s)<path>(.*?)</path>.*?<content>(.*)</content>`)
	f.escaped = regexp.MustCompile(xmlEscaped)
	return f
})

// xmlFileAt recognises the beginning of a file in XML.
func xmlFileAt(line string) bool {
	if !strings.Contains(line, "<file") {
		return false
	}
	m := xmlForms().open.FindStringSubmatch(line)
	if m == nil {
		return false
	}
	path, _ := xmlAttributes(m[1])
	rest := strings.TrimSpace(line[len(m[0]):])
	return path != "" || m[2] == "" && (rest == "" || strings.HasPrefix(rest, "<path>"))
}

// Other tags in which models hand over files: bolt.new's actions, Anthropic's artifacts, and Cline's tool.
var artifactForms = sync.OnceValue(func() (f struct{ bolt, ant, cline, attribute *regexp.Regexp }) {
	f.bolt = regexp.MustCompile(`(?s)<boltAction\b([^>]*)>(.*?)</boltAction>`)
	f.ant = regexp.MustCompile(`(?s)<antArtifact\b([^>]*)>(.*?)</antArtifact>`)
	f.cline = regexp.MustCompile(`(?s)<write_to_file\b([^>]*)>(.*?)</write_to_file>`)
	f.attribute = regexp.MustCompile(`\b(type|filePath|title)="([^"]*)"`)
	return f
})

// artifactAt recognises the beginning of such a tag, or of the one around several.
func artifactAt(line string) bool {
	for _, tag := range []string{"<boltArtifact", "<boltAction", "<antArtifact", "<write_to_file"} {
		if strings.HasPrefix(line, tag) {
			return true
		}
	}
	return false
}

// artifacts is src with such tags written as <file>. Commands that an answer asks for are not run.
func (p *parser) artifacts(src source) string {
	forms, form := artifactForms(), (*regexp.Regexp)(nil)
	for _, line := range src.lines { // the first tag decides: the others are what a file holds
		if line = strings.TrimLeft(line, " \t"); xmlFileAt(line) {
			break
		} else if artifactAt(line) {
			form = map[byte]*regexp.Regexp{'b': forms.bolt, 'a': forms.ant, 'w': forms.cline}[line[1]]
			break
		}
	}
	if form == nil {
		return src.text()
	}
	return form.ReplaceAllStringFunc(src.text(), func(whole string) string {
		m := form.FindStringSubmatch(whole)
		attributes := map[string]string{}
		for _, a := range forms.attribute.FindAllStringSubmatch(m[1], -1) {
			attributes[a[1]] = a[2]
		}
		name, content := attributes["filePath"], m[2]
		switch {
		case form == forms.cline:
			return "\n<file>" + content + "\n</file>"
		case form == forms.ant && pathlike(attributes["title"]):
			name = attributes["title"]
		case form == forms.ant:
			p.fail(0, fmt.Sprintf("the artifact %q has no file name", attributes["title"]), "give the file's path as its title")
			return ""
		case name == "":
			p.note("an action of the type %q was left out: %.60q", attributes["type"], strings.TrimSpace(content))
			return ""
		}
		if !strings.HasSuffix(content, "\n") {
			content += "\n"
		}
		return "\n<file path=\"" + name + "\">" + content + "</file>\n"
	})
}

// xmlAttributes are the path and the mode that a tag has.
func xmlAttributes(attributes string) (path, mode string) {
	for _, m := range xmlForms().attribute.FindAllStringSubmatch(attributes, -1) {
		switch value := m[2] + m[3]; m[1] {
		case "path", "name", "filename", "file":
			path = cmp.Or(path, html.UnescapeString(value))
		case "mode":
			mode = value
		}
	}
	return path, mode
}

// xml reads files in tags. What is between the tags is taken as it is, since models seldom escape it, unless it is a
// CDATA section, or can only be meant as escaped.
func (p *parser) xml(src source) {
	forms, text, line := xmlForms(), p.artifacts(src), src.first
	for seen := false; ; seen = true {
		tag := forms.open.FindStringSubmatchIndex(text)
		if tag == nil {
			tag = []int{len(text)}
		}
		for statement := range strings.Lines(text[:tag[0]]) {
			p.xmlStatement(strings.TrimSpace(statement))
		}
		if len(tag) == 1 {
			if !seen {
				p.fail(src.first, "there is no file in the answer",
					`write <file path="src/main.py">, the content, and </file> in a line of its own`)
			}
			return
		}
		first := line + strings.Count(text[:tag[0]], "\n")
		path, mode := xmlAttributes(text[tag[2]:tag[3]])
		raw, end := "", tag[1]
		if tag[4] == tag[5] { // it is not closed at once
			body, form := text[tag[1]:], forms.end
			if strings.HasPrefix(strings.TrimSpace(body[:min(len(body), 1<<10)]), "<![CDATA[") {
				form = forms.endOfCDATA
			}
			at := form.FindStringSubmatchIndex(body)
			if at == nil {
				p.failIn(path, first, "the tag <file> that begins here has no </file>: the answer was cut off",
					"give the file again, whole")
				return
			}
			raw, end = body[:at[0]], tag[1]+at[3]
			if form == forms.endOfCDATA {
				raw += "]]>"
			}
		}
		line += strings.Count(text[:end], "\n")
		text = text[end:]
		if m := forms.children.FindStringSubmatch(raw); path == "" && m != nil {
			path, raw = html.UnescapeString(strings.TrimSpace(m[1])), m[2]
		}
		if path == "" {
			p.fail(first, "the tag <file> has no path", `write <file path="src/main.py">`)
			continue
		}
		f := File{Path: path, Content: []byte(xmlText(wholeLines(raw))), Line: first}
		if mode != "" {
			var ok bool
			if f.Mode, ok = modeOf(mode); !ok {
				p.failIn(path, first, "invalid mode "+clip(mode), `write mode="0755"`)
			}
		}
		p.file(f)
	}
}

// wholeLines is what stands between two tags, without the blanks before the first line and behind the last one, which
// belong to the tags.
func wholeLines(raw string) string {
	if blank, rest, ok := strings.Cut(raw, "\n"); ok && strings.TrimSpace(blank) == "" {
		raw = rest
	}
	last := strings.LastIndexByte(raw, '\n') + 1
	if strings.TrimSpace(raw[last:]) == "" {
		return raw[:last]
	}
	return raw + "\n"
}

// xmlText is the content of a file.
func xmlText(text string) string {
	if s, ok := strings.CutPrefix(strings.TrimSpace(text), "<![CDATA["); ok {
		if s, ok := strings.CutSuffix(s, "]]>"); ok {
			s = strings.ReplaceAll(strings.TrimPrefix(s, "\n"), "]]]]><![CDATA[>", "]]>")
			if s != "" && !strings.HasSuffix(s, "\n") {
				s += "\n"
			}
			return s
		}
	}
	if xmlForms().escaped.MatchString(text) {
		return html.UnescapeString(text)
	}
	return text
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
