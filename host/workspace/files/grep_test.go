package files

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func grepText(t *testing.T, f *Files, r GrepRequest) string {
	t.Helper()
	m, err := f.Grep(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := m.WriteText(&b, r.Before+r.After > 0); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestGrep(t *testing.T) {
	files := map[string]string{
		"a.go": "package a\n\nfunc One() {}\nfunc Two() {\n\treturn\n}\n", "b/b.go": "package b\nfunc one() {}\n", "b/c.txt": "func in text\r\nlast", "bin": "func\x00func\n",
		"vendor/v.go": "func Vendored() {}\n", "umlaut.txt": "Grüße\n\u212aelvin\n", "escape": "func \x1b[2J\n", "b/\x1b[31m": "func name\n",
	}
	both(t, files, nil, func(t *testing.T, f *Files, b *box) {
		for name, c := range map[string]struct {
			r    GrepRequest
			want string
		}{
			"a word":           {GrepRequest{Pattern: "One"}, "a.go:3:func One() {}\n"},
			"ignoring case":    {GrepRequest{Pattern: "ONE", IgnoreCase: true}, "a.go:3:func One() {}\nb/b.go:2:func one() {}\n"},
			"an expression":    {GrepRequest{Pattern: `^func [A-Z]\w+\(\) \{$`}, "a.go:4:func Two() {\n"},
			"a plain text":     {GrepRequest{Pattern: "() {", Fixed: true, Include: []string{"b/*.go"}}, "b/b.go:2:func one() {}\n"},
			"alternatives":     {GrepRequest{Pattern: "Two|one", Include: []string{"*.go"}}, "a.go:4:func Two() {\nb/b.go:2:func one() {}\n"},
			"no literal":       {GrepRequest{Pattern: `[wx]o\(`}, "a.go:4:func Two() {\n"},
			"ends":             {GrepRequest{Pattern: `\Apackage \w\z`}, "a.go:1:package a\nb/b.go:1:package b\n"},
			"last line":        {GrepRequest{Pattern: "last$"}, "b/c.txt:2:last\n"},
			"a CR is no text":  {GrepRequest{Pattern: "in text"}, "b/c.txt:1:func in text\n"},
			"in a directory":   {GrepRequest{Pattern: "package", Paths: []string{"b"}}, "b/b.go:1:package b\n"},
			"in a file":        {GrepRequest{Pattern: "package", Paths: []string{"/workspace/a.go", "a.go"}}, "a.go:1:package a\n"},
			"without":          {GrepRequest{Pattern: "func V|func T", Exclude: []string{"vendor"}}, "a.go:4:func Two() {\n"},
			"by path":          {GrepRequest{Pattern: "package", Include: []string{"**/b.go"}}, "b/b.go:1:package b\n"},
			"files":            {GrepRequest{Pattern: "func", FilesOnly: true, Include: []string{"*.go"}}, "a.go\nb/b.go\nvendor/v.go\n"},
			"kelvin":           {GrepRequest{Pattern: "kelvin", IgnoreCase: true}, "umlaut.txt:2:\u212aelvin\n"},
			"umlaut":           {GrepRequest{Pattern: "GRÜSSE|grüße", IgnoreCase: true}, "umlaut.txt:1:Grüße\n"},
			"escapes are seen": {GrepRequest{Pattern: `func .\[|func name`}, "b/\\x1b[31m:1:func name\nescape:1:func \\x1b[2J\n"},
			"none":             {GrepRequest{Pattern: "nowhere"}, ""},
			"empty lines":      {GrepRequest{Pattern: "^$", Include: []string{"a.go"}}, "a.go:2:\n"},
			"context":          {GrepRequest{Pattern: "One|return", Before: 1, After: 1}, "a.go-2-\na.go:3:func One() {}\na.go-4-func Two() {\na.go:5:\treturn\na.go-6-}\n"},
			"gaps":             {GrepRequest{Pattern: "package|return", Include: []string{"a.go", "b.go"}, Before: 1}, "a.go:1:package a\n--\na.go-4-func Two() {\na.go:5:\treturn\n--\nb/b.go:1:package b\n"},
		} {
			if diff := cmp.Diff(c.want, grepText(t, f, c.r)); diff != "" {
				t.Errorf("%s:\n%s", name, diff)
			}
		}
		m, err := f.Grep(t.Context(), GrepRequest{Pattern: "func"})
		if err != nil || m.Binary != 1 || m.Count != 7 || m.Truncated || m.Searched != 7 {
			t.Errorf("%+v, %v", m, err)
		}
		m, err = f.Grep(t.Context(), GrepRequest{Pattern: "func", Max: 2, After: 3})
		if err != nil || m.Count != 2 || !m.Truncated {
			t.Errorf("%+v, %v", m, err)
		}
		for name, r := range map[string]GrepRequest{"no expression": {Pattern: "a("}, "lookahead": {Pattern: "(?=a)"}, "empty": {}, "glob": {Pattern: "a", Include: []string{"[a"}}, "lines": {Pattern: "a\nb", Fixed: true}, "negative": {Pattern: "a", Before: -1}} {
			_, err := f.Grep(t.Context(), r)
			wantReason(t, name, err, ReasonRequest)
		}
		_, err = f.Grep(t.Context(), GrepRequest{Pattern: "a", Paths: []string{"nowhere"}})
		wantReason(t, "a path that is not there", err, ReasonMissing)
	})
}

func TestLongLinesAreCut(t *testing.T) {
	b := newBox(t, true, map[string]string{"min.js": strings.Repeat("é", 5000) + "needle\n"}, nil)
	m, err := b.open(Options{}).Grep(t.Context(), GrepRequest{Pattern: "needle"})
	if err != nil || m.Count != 1 || !m.Files[0].Lines[0].Cut || len(m.Files[0].Lines[0].Text) != MaxLine {
		t.Errorf("%v, %d files", err, len(m.Files))
	}
}

// naive is what a matcher does, in the plainest way.
func naive(re *regexp.Regexp, b []byte) []int {
	var out []int
	n := 0
	for line := range bytes.Lines(b) {
		n++
		if re.Match(bytes.TrimSuffix(line, []byte("\n"))) {
			out = append(out, n)
		}
	}
	return out
}

// FuzzMatcher compares the lines that are found the quick way with those found one line at a time.
func FuzzMatcher(f *testing.F) {
	for _, s := range []string{"foo", "foo|bar", "(?i)Kelvin", "^a.*b$", "[a-z]+_x", `\bfoo\b`, "a\\nb", `\Aa`, `b\z`, "^$", "x*", "(abc)+d?", "(?i:straße)", "[^a]b", "(?s).", "a|", "É", "\\xff", "(?-s:.)b", "a{2,}b", "$^", "(?m)^b"} {
		f.Add(s, "foo\nbar foo\n\nabcd\nKELVIN \u212aelvin\na\nb\naab", false)
		f.Add(s, "\xff\r\nb\n", true)
	}
	f.Fuzz(func(t *testing.T, pattern, text string, fold bool) {
		m, err := newMatcher(GrepRequest{Pattern: pattern, IgnoreCase: fold})
		if err != nil {
			t.Skip()
		}
		expr := pattern
		if fold {
			expr = "(?i:" + expr + ")"
		}
		b := []byte(text)
		var got []int
		for _, p := range m.lines(b, len(b)+1) {
			got = append(got, p.number)
			if line := string(b[p.start:p.end]); strings.Count(strings.TrimSuffix(line, "\n"), "\n") != 0 {
				t.Errorf("line %d is %q", p.number, line)
			}
		}
		if want := naive(regexp.MustCompile(expr), b); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%q in %q: lines %v, want %v", expr, text, got, want)
		}
	})
}
