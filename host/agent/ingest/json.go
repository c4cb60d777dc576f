package ingest

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sort"
	"strconv"
	"strings"
)

// shapes is what a JSON answer may look like, for messages.
const shapes = `the shapes are {"files":[{"path":"main.py","content":"…"}],"entrypoint":"main.py"}, {"code":"…","language":"python"} and {"main.py":"…"}`

// json reads src, which holds one JSON value somewhere.
func (p *parser) json(src source) {
	p.out.Format = JSON
	f, ok := findJSON(src.text())
	if !ok {
		p.fail(src.first, "there is no JSON object with files in the answer", shapes)
		return
	}
	p.jsonFound(f, src)
}

func (p *parser) jsonFound(f found, src source) {
	line := src.first + f.line
	switch {
	case errors.Is(f.err, io.ErrUnexpectedEOF):
		p.fail(line, "the JSON that begins here has no end: the answer was cut off, or a quote inside of a string is not escaped",
			"give it again, whole")
		return
	case f.err != nil:
		p.fail(line, "the JSON that begins here cannot be read: "+f.err.Error(),
			`inside of strings, a quote is written \" and a line break \n`)
		return
	case f.twice != "":
		p.fail(line, fmt.Sprintf("an object has the name %q twice", clip(f.twice)), "give each name once")
		return
	}
	if f.fixed {
		p.note("the JSON was read with good will: it has raw line breaks or tabs in strings, or commas too many")
	}
	switch v := f.value.(type) {
	case []any:
		p.list(v, "", line)
	case object:
		p.object(v, line)
	}
}

// holdsFiles reports whether a value has one of the shapes, rightly or with mistakes.
func holdsFiles(v any) bool {
	switch v := v.(type) {
	case []any:
		if len(v) == 0 {
			return false
		}
		o, ok := v[0].(object)
		return ok && isFile(o)
	case object:
		if _, _, ok := v.get("files"); ok {
			return true
		}
		if code, _, ok := v.get("code"); ok {
			_, text := code.(string)
			return text
		}
		if isFile(v) {
			return true
		}
		for _, m := range v {
			if _, text := m.value.(string); text && pathlike(m.name) {
				return true
			}
		}
	}
	return false
}

var (
	pathNames    = []string{"path", "filename", "file_path", "file", "name"}
	contentNames = []string{"content", "contents", "code", "text"}
)

func isFile(o object) bool {
	_, _, path := o.get(pathNames...)
	_, _, content := o.get(contentNames...)
	return path && content
}

func (p *parser) object(o object, line int) {
	if files, _, ok := o.get("files"); ok {
		p.about(o, line)
		switch v := files.(type) {
		case []any:
			p.list(v, "files", line)
		case object:
			p.table(v, line, func(string) bool { return true })
		default:
			p.fail(line, "files is "+kindOf(files)+", not a list", shapes)
		}
		return
	}
	if isFile(o) {
		p.about(o, line)
		p.oneFile(o, "the object", line)
		return
	}
	if code, _, ok := o.get("code"); ok {
		p.about(o, line)
		p.code(code, line)
		return
	}
	p.about(o, line)
	p.table(o, line, func(name string) bool { return !said[name] })
}

// said are members that say something about the program.
var said = map[string]bool{
	"entrypoint": true, "entry_point": true, "language": true, "dependencies": true,
	"description": true, "explanation": true, "summary": true, "notes": true, "thoughts": true, "reasoning": true, "name": true, "title": true,
}

// about reads what an object says besides files.
func (p *parser) about(o object, line int) {
	text := func(names ...string) string {
		v, name, ok := o.get(names...)
		if !ok || v == nil {
			return ""
		}
		s, ok := v.(string)
		if !ok {
			p.fail(line, name+" is "+kindOf(v)+", not a string", "")
		}
		return s
	}
	p.out.Entrypoint = text("entrypoint", "entry_point")
	p.out.Language = text("language")
	v, name, ok := o.get("dependencies")
	if !ok || v == nil {
		return
	}
	list, ok := v.([]any)
	if !ok {
		p.fail(line, name+" is "+kindOf(v)+", not a list of strings", `write "dependencies": ["requests==2.32.3"]`)
		return
	}
	for i, e := range list {
		s, ok := e.(string)
		if !ok {
			p.fail(line, fmt.Sprintf("dependencies[%d] is %s, not a string", i, kindOf(e)),
				`write "dependencies": ["requests==2.32.3"]`)
			continue
		}
		p.out.Dependencies = append(p.out.Dependencies, s)
	}
}

// code is the older shape: one program without a name. It becomes the entrypoint, or the language's main file.
func (p *parser) code(v any, line int) {
	s, ok := v.(string)
	if !ok {
		p.fail(line, "code is "+kindOf(v)+", not a string", "")
		return
	}
	name := p.out.Entrypoint
	if name == "" {
		ext := ".py"
		if p.out.Language != "" {
			l, ok := languageOf(p.out.Language)
			if !ok {
				p.problem(unknownLanguage(p.out.Language))
				return
			}
			ext = l.Extensions[0]
		}
		name = "main" + ext
		p.out.Entrypoint = name
	}
	p.file(File{Path: name, Content: []byte(s)})
}

func (p *parser) list(files []any, name string, line int) {
	if len(files) == 0 {
		p.fail(line, "the list of files is empty", "")
	}
	for i, v := range files {
		at := fmt.Sprintf("%s[%d]", name, i)
		o, ok := v.(object)
		if !ok {
			p.fail(line, at+" is "+kindOf(v)+", not an object with path and content", shapes)
			continue
		}
		p.oneFile(o, at, line)
	}
}

// table reads {"path":"content"}.
func (p *parser) table(o object, line int, isPath func(string) bool) {
	n := 0
	for _, m := range o {
		if !isPath(m.name) {
			continue
		}
		n++
		switch v := m.value.(type) {
		case string:
			p.file(File{Path: m.name, Content: []byte(v)})
		case object:
			if _, _, ok := v.get(contentNames...); ok {
				p.oneFile(append(object{{"path", m.name}}, v...), fmt.Sprintf("%q", clip(m.name)), line)
				continue
			}
			p.fail(line, fmt.Sprintf("the content of %q is an object, not a string", clip(m.name)),
				`write JSON files as a string too, with \" for each quote`)
		default:
			p.fail(line, fmt.Sprintf("the content of %q is %s, not a string", clip(m.name), kindOf(v)), shapes)
		}
	}
	if n == 0 {
		p.fail(line, "there is no file in the object", shapes)
	}
}

// oneFile reads {path, content, encoding?, mode?}.
func (p *parser) oneFile(o object, at string, line int) {
	problem := func(path, hint, format string, args ...any) {
		p.failIn(path, line, fmt.Sprintf(format, args...), hint)
	}
	v, name, ok := o.get(pathNames...)
	path, text := v.(string)
	switch {
	case !ok:
		problem("", shapes, "%s has no path", at)
		return
	case !text:
		problem("", "", "%s of %s is %s, not a string", name, at, kindOf(v))
		return
	}
	v, name, ok = o.get(contentNames...)
	content, text := v.(string)
	switch {
	case !ok:
		problem(path, `an empty file has "content": ""`, "%s has no content", at)
		return
	case !text:
		hint := `write it as one string, with \n for each line break`
		if _, isObject := v.(object); isObject {
			hint = `write JSON files as a string too, with \" for each quote`
		}
		problem(path, hint, "%s of %s is %s, not a string", name, at, kindOf(v))
		return
	}
	f := File{Path: path, Content: []byte(content)}
	if v, _, ok := o.get("encoding"); ok && v != nil {
		switch strings.ToLower(fmt.Sprint(v)) {
		case "", "utf-8", "utf8", "text", "plain":
		case "base64":
			raw, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(content), ""))
			if err != nil {
				problem(path, "", "the content of %s is not base64: %v", at, err)
				return
			}
			f.Content = raw
		default:
			problem(path, `an encoding is "utf-8" or "base64"`, "%s has the encoding %q", at, clip(fmt.Sprint(v)))
			return
		}
	}
	if v, _, ok := o.get("mode"); ok && v != nil {
		mode, ok := modeOf(v)
		if !ok {
			problem(path, `write "mode": "0644" or "0755"`, "%s has the mode %q", at, clip(fmt.Sprint(v)))
			return
		}
		f.Mode = mode
	}
	p.file(f)
}

// modeOf reads permissions, as octal digits in a string or a number; git's modes of files too.
func modeOf(v any) (fs.FileMode, bool) {
	var s string
	switch v := v.(type) {
	case string:
		s = strings.TrimPrefix(v, "0o")
	case json.Number:
		s = v.String()
	default:
		return 0, false
	}
	n, err := strconv.ParseUint(s, 8, 32)
	if err != nil || len(s) < 3 || len(s) > 6 {
		return 0, false
	}
	if n&^0o777 == 0o100000 {
		n &= 0o777
	}
	return fs.FileMode(n), n != 0 && n&^0o777 == 0
}

func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case string:
		return "a string"
	case bool:
		return "a boolean"
	case json.Number:
		return "a number"
	case []any:
		return "a list"
	case object:
		return "an object"
	}
	return "something else"
}

// clip keeps names in messages short.
func clip(s string) string {
	if len(s) <= 80 {
		return s
	}
	return strings.ToValidUTF8(s[:80], "") + "…"
}

// sortedNames are the paths of files.
func sortedNames(files []File) []string {
	out := make([]string, len(files))
	for i, f := range files {
		out[i] = f.Path
	}
	sort.Strings(out)
	return out
}
