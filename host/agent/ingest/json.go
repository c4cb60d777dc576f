package ingest

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"sync"

	"github.com/hutch-run/hutch/host/termsafe"
)

// shapes is what a JSON answer may look like, for messages.
const shapes = `the shapes are {"files":[{"path":"main.py","content":"…"}],"entrypoint":"main.py"}, ` +
	`{"code":"…","language":"python"} and {"main.py":"…"}`

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
		p.fail(line,
			"the JSON that begins here has no end: the answer was cut off, or a quote inside of a string is not escaped",
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
	p.about(o, line)
	files, _, hasFiles := o.get("files")
	code, _, hasCode := o.get("code")
	list, isList := files.([]any)
	named, isTable := files.(object)
	switch {
	case isList:
		p.list(list, "files", line)
	case isTable:
		p.table(named, line, func(string) bool { return true })
	case hasFiles:
		p.fail(line, "files is "+kindOf(files)+", not a list", shapes)
	case isFile(o):
		p.oneFile(o, "the object", line)
	case hasCode:
		p.code(code, line)
	default:
		p.table(o, line, func(name string) bool { return !said[name] })
	}
}

// said are members that say something about the program.
var said = map[string]bool{
	"entrypoint": true, "entry_point": true, "language": true, "dependencies": true, "description": true,
	"explanation": true, "summary": true, "notes": true, "thoughts": true, "reasoning": true, "name": true, "title": true,
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
func clip(s string) string { return termsafe.Clip(s, 80) }

// sortedNames are the paths of files.
func sortedNames(files []File) []string {
	out := make([]string, len(files))
	for i, f := range files {
		out[i] = f.Path
	}
	sort.Strings(out)
	return out
}

// member is one member of an object. Order is kept, and a name that is there twice is there twice.
type member struct {
	name  string
	value any
}

// object is a JSON object. Arrays are []any, numbers json.Number.
type object []member

// get returns the first member of one of the names.
func (o object) get(names ...string) (any, string, bool) {
	for _, name := range names {
		for _, m := range o {
			if m.name == name {
				return m.value, name, true
			}
		}
	}
	return nil, "", false
}

// found is JSON that was found in a text.
type found struct {
	value any // object or []any; nil when err says what is wrong with it
	err   error
	line  int // of the text where it begins, from 0
	fixed bool
	twice string // a name that an object has twice; "" for none
}

const (
	maxNesting = 64
	maxTries   = 200
)

// findJSON finds the first JSON value in a text that holds files. What can be read only with good will is tried after
// all else: line breaks inside of strings, and commas before a closing bracket. What looks as if it were meant to hold
// files and cannot be read is found too, with the error.
func findJSON(text string) (found, bool) {
	budget := 4*len(text) + 4096 // bytes looked at: a hostile text has a beginning at every byte
	var broken *found
	for at, tries := 0, 0; tries < maxTries && budget > 0; tries++ {
		i := strings.IndexAny(text[at:], "{[")
		if i < 0 {
			break
		}
		at += i
		if broken != nil && at > 0 && text[at-1] != '\n' {
			at++ // a part of what is broken must not be taken for the whole
			continue
		}
		v, n, twice, err := decodeJSON(text[at:])
		budget -= n + 1
		f := found{value: v, err: err, line: strings.Count(text[:at], "\n"), twice: twice}
		switch {
		case err == nil && holdsFiles(v):
			return f, true
		case err == nil:
			at += n
			continue
		case broken == nil && meantAsFiles(text[at:]):
			fixed, whole := mend(text[at:])
			if whole {
				if v, _, twice, err := decodeJSON(fixed); err == nil && holdsFiles(v) {
					f.value, f.err, f.twice, f.fixed = v, nil, twice, true
					return f, true
				}
			} else {
				f.err = io.ErrUnexpectedEOF
			}
			if broken = &f; errors.Is(f.err, io.ErrUnexpectedEOF) {
				return f, true
			}
		}
		at++
	}
	if broken != nil {
		return *broken, true
	}
	return found{}, false
}

// meantAsFiles reports whether broken JSON begins like one of the shapes.
func meantAsFiles(s string) bool {
	s = strings.TrimLeft(strings.TrimLeft(s[1:], " \t\r\n"), "{ \t\r\n")
	name, rest, ok := strings.Cut(strings.TrimPrefix(s, `"`), `"`)
	if !strings.HasPrefix(s, `"`) || !ok || len(name) > 4096 ||
		!strings.HasPrefix(strings.TrimLeft(rest, " \t\r\n"), ":") {
		return false
	}
	switch name {
	case "files", "code", "path", "entrypoint", "language", "dependencies", "content":
		return true
	}
	return pathlike(name)
}

// decodeJSON reads the value at the beginning of a text, and says how many bytes it looked at.
func decodeJSON(text string) (v any, n int, twice string, err error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	r := jsonReader{d: d}
	v, err = r.value(0)
	n = int(d.InputOffset())
	var syntax *json.SyntaxError
	switch {
	case err == nil:
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err, n = io.ErrUnexpectedEOF, len(text)
	case errors.As(err, &syntax):
		n = max(n, min(int(syntax.Offset), len(text)))
	}
	return v, n, r.twice, err
}

type jsonReader struct {
	d     *json.Decoder
	twice string
}

func (r *jsonReader) value(depth int) (any, error) {
	if depth > maxNesting {
		return nil, fmt.Errorf("the JSON is nested deeper than %d levels", maxNesting)
	}
	t, err := r.d.Token()
	if err != nil {
		return nil, err
	}
	switch t {
	case json.Delim('{'):
		o, seen := object{}, map[string]bool{}
		for r.d.More() {
			name, err := r.d.Token()
			if err != nil {
				return nil, err
			}
			key, _ := name.(string)
			if seen[key] && r.twice == "" {
				r.twice = key
			}
			seen[key] = true
			v, err := r.value(depth + 1)
			if err != nil {
				return nil, err
			}
			o = append(o, member{key, v})
		}
		_, err := r.d.Token()
		return o, err
	case json.Delim('['):
		a := []any{}
		for r.d.More() {
			v, err := r.value(depth + 1)
			if err != nil {
				return nil, err
			}
			a = append(a, v)
		}
		_, err := r.d.Token()
		return a, err
	}
	return t, nil
}

var jsonTokens = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?s)"(?:[^"\\]|\\.)*"?|,?[ \t\r\n]*[\]}]|[\[{]`)
})

var rawInStrings = strings.NewReplacer("\n", `\n`, "\t", `\t`, "\r", `\r`)

// mend escapes line breaks and tabs inside of strings and takes out commas before closing brackets, up to the end of
// the value that s begins with. whole is false when s has no such end.
func mend(s string) (out string, whole bool) {
	var b strings.Builder
	for depth := 0; ; {
		at := jsonTokens().FindStringIndex(s)
		if at == nil {
			return b.String() + s, false
		}
		b.WriteString(s[:at[0]])
		token := s[at[0]:at[1]]
		switch token[0] {
		case '"':
			token = rawInStrings.Replace(token)
		case '{', '[':
			depth++
		default:
			token = strings.TrimPrefix(token, ",")
			depth--
		}
		b.WriteString(token)
		if s = s[at[1]:]; depth == 0 {
			return b.String(), true
		}
	}
}
