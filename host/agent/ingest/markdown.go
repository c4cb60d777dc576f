package ingest

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/hutch-run/hutch/host/run/language"
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
	maybe         string // path that the prose above speaks of, where it may be about a part of the file
	prefixed      bool   // the name is in the first line of a file that has no comments, and is no part of it
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
	for _, f := range fences {
		if f.maybe != "" {
			p.fail(f.line, fmt.Sprintf("the block may be all of %s, or a part of it", safepathQuote(f.maybe)),
				"name a whole file in the line that opens its block: ```"+f.lang+" path="+f.maybe)
		}
	}
	if named == 0 && len(p.problems) == 0 {
		rest := slices.DeleteFunc(slices.Clone(program), func(f fence) bool {
			l, _ := languageOf(f.lang)
			return l.Name == "shell"
		})
		if len(rest) == 0 && len(program) == 1 {
			rest = program // a script
		}
		if len(rest) == 1 {
			l, _ := languageOf(rest[0].lang)
			rest[0].name, p.out.assumed = "main"+l.Extensions[0], rest[0].line
			p.block(rest[0])
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

// citation is the language of a block that shows lines of an existing file, as 12:15:src/main.py.
const citation = "(citation)"

// identify finds language and name of a block. What the opening line says counts most, then the line above it, then a
// comment in its first line.
func (f *fence) identify(above string) {
	words := infoWords(f.info)
	attr := ""
	for i, w := range words {
		if key, value, ok := strings.Cut(w, "="); ok {
			value = strings.Trim(value, `"'`)
			switch strings.ToLower(strings.TrimLeft(key, "{.")) {
			case "path", "file", "filename", "filepath", "file_path":
				if attr == "" {
					attr = value
				}
			case "title", "name", "src":
				if attr == "" && pathlike(value) {
					attr = value
				}
			}
			continue
		}
		if i > 0 {
			continue
		}
		word := strings.TrimLeft(w, "{.")
		lang, name, ok := strings.Cut(word, ":")
		switch {
		case ok && name != "" && strings.Trim(lang, "0123456789") != "":
			f.lang, f.name = strings.ToLower(lang), name
		case ok:
			f.lang = citation
		case pathlike(word) && !strings.HasPrefix(w, "{"):
			f.name = word
		default:
			f.lang = strings.ToLower(word)
		}
	}
	switch {
	case attr != "":
		f.name = attr
	case f.name != "" || f.lang == citation:
	case len(words) > 1 && pathlike(words[1]):
		f.name = words[1]
	default:
		if f.name = headingName(above, f.lang); f.name == "" {
			f.name = f.commentName()
		}
		if f.name == "" {
			f.name, f.maybe = proseName(above, f.lang)
		}
	}
}

// infoWords splits an info string at spaces and commas outside of quotes.
func infoWords(info string) []string {
	words := infoWord().FindAllString(info, -1)
	for i, w := range words {
		words[i] = strings.TrimSuffix(w, "}")
	}
	return words
}

var infoWord = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?:[^ \t,"']|"[^"]*"?|'[^']*'?)+`)
})

// bareNames are files that are known without an extension.
var bareNames = []string{"Makefile", "Dockerfile", "Containerfile", "Gemfile", "Rakefile", "Procfile", "Vagrantfile",
	"Justfile", "LICENSE", "README", "CHANGELOG"}

// products look like file names and are none.
var products = []string{"node.js", "next.js", "nuxt.js", "vue.js", "react.js", "express.js", "three.js", "d3.js",
	"p5.js", "chart.js", "asp.net", "socket.io"}

// pathlike reports whether one word is meant as a path, a bad one included.
func pathlike(s string) bool {
	if s == "" || len(s) > 4096 || strings.ContainsAny(s, " \t`*<>|\"'") || strings.Contains(s, "://") ||
		strings.HasSuffix(s, "/") {
		return false
	}
	base := path.Base(s)
	if slices.Contains(bareNames, base) {
		return true
	}
	ext := path.Ext(base)
	if len(ext) > 1 && len(ext) <= 12 && strings.Trim(strings.ToLower(ext[1:]),
		"abcdefghijklmnopqrstuvwxyz0123456789_") == "" {
		return strings.Trim(ext[1:], "0123456789") != "" && !strings.HasPrefix(base, "..")
	}
	if strings.HasPrefix(base, ".") && len(base) > 1 && strings.Trim(base, ".") != "" {
		return true // .gitignore
	}
	// Something without an extension is a path when it has directories, and looks like nothing else.
	return strings.Contains(s, "/") && !strings.ContainsAny(s, "()=,;$") && strings.Trim(s, "/.") != "" ||
		strings.HasPrefix(s, "../") || s == "/"
}

// namedBy is the path that a line names and says nothing besides: the path itself, with marks of Markdown, a number, or
// a word such as File around it.
func namedBy(line string) string {
	if len(line) > 4200 {
		return ""
	}
	s := strings.TrimSpace(line)
	s = strings.TrimSpace(strings.TrimLeft(s, "#"))
	s = strings.TrimLeft(s, "*_- \t")
	if n, rest, ok := strings.Cut(s, " "); ok && n != "" && strings.Trim(strings.TrimRight(n, ".)"), "0123456789") == "" {
		s = rest
	}
	s = strings.Trim(s, "*_: \t")
	for _, label := range []string{"file", "filename", "file name", "path", "filepath", "new file", "create file",
		"update file", "create", "update"} {
		if len(s) > len(label) && strings.EqualFold(s[:len(label)], label) &&
			strings.ContainsAny(s[len(label):len(label)+1], ": \t*`") {
			s = strings.Trim(s[len(label):], "*_: \t")
			break
		}
	}
	if i := strings.LastIndex(s, " ("); i > 0 && strings.HasSuffix(s, ")") && !strings.Contains(s[i:], "/") {
		s = s[:i] // (new file)
	}
	s = strings.Trim(s, "*: \t")
	s = strings.Trim(s, "`")
	if !pathlike(s) || slices.Contains(products, strings.ToLower(s)) {
		return ""
	}
	return s
}

// headingName is the name that the line above a block gives it. A heading may say more than the name, if that is in
// backticks and fits the language of the block.
func headingName(above, lang string) string {
	if lang == "console" || lang == "output" || lang == "diff" || lang == "patch" {
		return ""
	}
	if name := namedBy(above); name != "" {
		if lang == "" || lang == "text" || fits(lang, name) || !knownExtension(name) {
			return name
		}
		return ""
	}
	s := strings.TrimSpace(above)
	if !strings.HasPrefix(s, "#") && !strings.HasPrefix(s, "**") {
		return ""
	}
	parts := strings.Split(s, "`")
	if len(parts) == 3 && pathlike(parts[1]) && lang != "" && fits(lang, parts[1]) {
		return parts[1]
	}
	return ""
}

// proseName is the path in backticks in a sentence above a block of its language. It is a name where the sentence says
// that the block is all of the file, as in "Here is the modified `a.py`:"; else it only may be.
func proseName(above, lang string) (name, maybe string) {
	parts := strings.Split(above, "`")
	if len(parts) != 3 || len(above) > 500 || !pathlike(parts[1]) || lang == "" || !fits(lang, parts[1]) ||
		slices.Contains(products, strings.ToLower(parts[1])) {
		return "", ""
	}
	words := strings.FieldsFunc(strings.ToLower(parts[0]+" "+parts[2]),
		func(r rune) bool { return !unicode.IsLetter(r) && r != '\'' })
	whole, part := false, false
	for _, w := range words {
		whole = whole || slices.Contains(wholeWords, w)
		part = part || slices.Contains(partWords, w)
	}
	if whole && !part && strings.HasSuffix(strings.TrimRight(above, " *_\t"), ":") {
		return parts[1], ""
	}
	return "", parts[1]
}

// Words of a sentence that speaks of a whole file, and of one that may speak of a part, or of something else.
var (
	wholeWords = []string{"here", "here's", "modified", "updated", "complete", "full", "entire", "whole", "new",
		"rewritten", "revised", "final", "save", "create", "write"}
	partWords = []string{"add", "adds", "added", "append", "insert", "replace", "change", "changes", "edit", "edits",
		"in", "inside", "within", "into", "from", "at", "after", "before",
		"function", "method", "class", "section", "part", "parts", "snippet", "line", "lines", "excerpt", "relevant", "run",
		"use", "using", "import", "not", "don't", "test", "like", "if", "would", "could", "example"}
)

// comments are what comments begin with, and what ends those that need it.
var comments = [][2]string{{"<!--", "-->"}, {"/*", "*/"}, {"//", ""}, {"--", ""}, {"#", ""}, {";", ""}, {"%", ""}}

// commentName is the name in a comment in the first line, or in the second one below a #! line.
func (f *fence) commentName() string {
	lines := f.lines
	if len(lines) > 0 && strings.HasPrefix(lines[0], "#!") {
		lines = lines[1:]
	}
	if len(lines) == 0 || f.lang == "console" || f.lang == "diff" || f.lang == "patch" {
		return ""
	}
	for _, c := range comments {
		rest, ok := strings.CutPrefix(strings.TrimSpace(lines[0]), c[0])
		if !ok {
			continue
		}
		if c[1] != "" {
			if rest, ok = strings.CutSuffix(rest, c[1]); !ok {
				continue
			}
		}
		name := namedBy(strings.TrimLeft(rest, "/#-; "))
		if name == "" || strings.HasPrefix(strings.TrimSpace(rest), "!") {
			return ""
		}
		if f.lang != "" && f.lang != "text" && knownExtension(name) && !fits(f.lang, name) {
			return ""
		}
		switch path.Ext(name) {
		case ".json", ".csv", ".tsv", ".txt":
			f.prefixed = len(lines) == len(f.lines)
		}
		return name
	}
	return ""
}

// languages are the names of languages by the extensions of their files.
var languages = map[string]string{
	".py": "python py python3", ".js": "javascript js jsx node nodejs node.js mjs cjs", ".mjs": "javascript js",
	".cjs": "javascript js", ".jsx": "jsx javascript js", ".ts": "typescript ts", ".tsx": "tsx typescript ts",
	".sh": "sh bash shell zsh", ".bash": "bash sh shell", ".go": "go golang", ".rb": "ruby rb", ".pl": "perl pl",
	".pm": "perl", ".rs": "rust rs", ".c": "c", ".h": "c cpp c++", ".cc": "cpp c++", ".cpp": "cpp c++",
	".hpp": "cpp c++", ".java": "java", ".kt": "kotlin", ".cs": "csharp c# cs", ".php": "php", ".html": "html",
	".css": "css", ".json": "json jsonc", ".yaml": "yaml yml", ".yml": "yaml yml", ".toml": "toml", ".ini": "ini",
	".xml": "xml", ".sql": "sql", ".md": "markdown md", ".txt": "text txt plaintext", ".csv": "csv text",
	".hcl": "hcl terraform", ".tf": "hcl terraform tf", ".proto": "proto protobuf",
}

// languageOf knows a language by the names that models use for it.
func languageOf(name string) (*language.Language, bool) {
	name = strings.ToLower(name)
	for ext, names := range languages {
		if l, ok := language.ByPath("x" + ext); ok && slices.Contains(strings.Fields(names), name) && name != "zsh" {
			return l, true
		}
	}
	return language.ByName(name)
}

func knownExtension(name string) bool { return languages[strings.ToLower(path.Ext(name))] != "" }

// fits reports whether a file of that name can be in that language.
func fits(lang, name string) bool {
	ext := strings.ToLower(path.Ext(name))
	return slices.Contains(strings.Fields(languages[ext]), lang) || ext == "."+lang ||
		ext == "" && strings.EqualFold(path.Base(name), lang)
}
