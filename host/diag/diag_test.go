package diag

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func at(src string, from, to int) Range {
	pos := func(n int) Pos {
		line := strings.Count(src[:n], "\n")
		return Pos{Line: line + 1, Column: utf8.RuneCountInString(src[strings.LastIndexByte(src[:n], '\n')+1:n]) + 1, Byte: n}
	}
	return Range{File: "x.hcl", Start: pos(from), End: pos(to)}
}

func mark(src, part string) (Range, *Snippet) {
	i := strings.Index(src, part)
	r := at(src, i, i+len(part))
	return r, Excerpt([]byte(src), r)
}

func TestText(t *testing.T) {
	src := "one\n\ttwo = \"日本\" \x1b[2J + x\nthree\r\nfour\nfive\nsix\n"
	for name, c := range map[string]struct {
		part, want string
		style      Style
	}{
		"a word":     {part: "two", want: "error: bad\n  at x.hcl:2:2:\n    2 |     two = \"日本\" \\x1b[2J + x\n      |     ^^^\n"},
		"wide":       {part: "日本", want: "error: bad\n  at x.hcl:2:9:\n    2 |     two = \"日本\" \\x1b[2J + x\n      |            ^^^^\n"},
		"after wide": {part: "x\n", want: "error: bad\n  at x.hcl:2:20:\n    2 |     two = \"日本\" \\x1b[2J + x\n      |                            ^\n"},
		"line end":   {part: "\n\ttwo", want: "error: bad\n  at x.hcl:1:4:\n    1 | one\n      |    ^\n    2 |     two = \"日本\" \\x1b[2J + x\n      |     ^^^\n"},
		"two lines":  {part: "three\r\nfour", want: "error: bad\n  at x.hcl:3:1:\n    3 | three\n      | ^^^^^\n    4 | four\n      | ^^^^\n"},
		"many lines": {part: "one\n" + src[4:], want: "error: bad\n  at x.hcl:1:1:\n    1 | one\n      | ^^^\n    2 |     two = \"日本\" \\x1b[2J + x\n      |     ^^^^^^^^^^^^^^^^^^^^^^^^\n    3 | three\n      | ^^^^^\n      | (and 3 more lines)\n"},
		"in colour":  {part: "two", style: Style{Color: true}, want: "\x1b[1;31merror:\x1b[m \x1b[1mbad\x1b[m\n  at x.hcl:2:2:\n    \x1b[2m2 |\x1b[m     \x1b[1mtwo\x1b[m = \"日本\" \\x1b[2J + x\n    \x1b[2m  |\x1b[m     \x1b[1;31m^^^\x1b[m\n"},
	} {
		r, s := mark(src, c.part)
		got := Diagnostic{Severity: Error, Summary: "bad", Range: &r, Snippet: s}.Text(c.style)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s\n%s", name, diff, got)
		}
	}
}

// TestNarrow shortens long lines around their mark.
func TestBelow(t *testing.T) {
	d := Diagnostic{Severity: Error, Summary: "there is no image x", Context: `backend "podman"`, Fix: "pull it"}
	withPath := d
	withPath.Path, withPath.Summary = "image", "image: there is no image x"
	for _, c := range []struct {
		text string
		ds   Diagnostics
		want string
	}{
		{"create: there is no image x", Diagnostics{d}, "  in backend \"podman\"\n  fix: pull it\n"},
		{"create: there is no image x", Diagnostics{withPath}, "  in backend \"podman\", value image\n  fix: pull it\n"},
		{"create: it did not work", Diagnostics{d}, ""},
		{"there is no image x", Diagnostics{d, d}, ""},
		{"there is no image x", nil, ""},
	} {
		if got := c.ds.Below(c.text, Style{}); got != c.want {
			t.Errorf("below %q: %q, want %q", c.text, got, c.want)
		}
	}
}

func TestNarrow(t *testing.T) {
	src := strings.Repeat("a", 100) + "BAD" + strings.Repeat("c", 100)
	r, s := mark(src, "BAD")
	got := Diagnostic{Severity: Error, Summary: "bad", Range: &r, Snippet: s}.Text(Style{Width: 40})
	want := "error: bad\n  at x.hcl:1:101:\n    1 | …aaaaaaaaaaaaaaaBADcccccccccccc…\n      |                 ^^^\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff, got)
	}
	r, s = mark(src, src)
	got = Diagnostic{Severity: Error, Summary: "bad", Range: &r, Snippet: s}.Text(Style{Width: 40})
	if want := "    1 | " + strings.Repeat("a", 31) + "…\n      | " + strings.Repeat("^", 32) + "\n"; !strings.HasSuffix(got, want) {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestTextWithAllParts(t *testing.T) {
	src := "memory = var.m\n"
	r, s := mark(src, "var.m")
	d := Diagnostic{
		Severity: Warning, Summary: "odd\nsummary \x1b]0;x\a", Range: &r, Snippet: s, Context: "limits of run \"a\"", Path: "limits.memory",
		Detail: strings.Repeat("word ", 30) + "\n  kept   as it is\nend.", Fix: strings.Repeat("mend ", 30) + "\u202e",
		Values: []Value{{"var.m", `"x"`}}, Related: []Related{{"first here", Range{File: "y.hcl", Start: Pos{Line: 3, Column: 4}}}},
	}
	want := `warning: odd\nsummary \x1b]0;x\x07
  at x.hcl:1:10, in limits of run "a", value limits.memory:
    1 | memory = var.m
      |          ^^^^^
    var.m is "x"
  word word word word word word word word word word word
  word word word word word word word word word word word
  word word word word word word word word
    kept   as it is
  end.
  y.hcl:3:4: first here
  fix: mend mend mend mend mend mend mend mend mend mend
       mend mend mend mend mend mend mend mend mend mend
       mend mend mend mend mend mend mend mend mend mend
       \u202e
`
	if diff := cmp.Diff(want, d.Text(Style{Width: 60})); diff != "" {
		t.Error(diff)
	}
}

func TestJSON(t *testing.T) {
	r, s := mark("a = 1\n", "1")
	b, err := json.Marshal(Diagnostics{{Severity: Error, Summary: "bad", Detail: "Why.", Fix: "mend it", Range: &r, Snippet: s, Context: "run \"a\""}})
	want := `[{"severity":"error","summary":"bad","detail":"Why.","fix":"mend it","context":"run \"a\"",` +
		`"range":{"file":"x.hcl","start":{"line":1,"column":5,"byte":4},"end":{"line":1,"column":6,"byte":5}},` +
		`"snippet":{"lines":[{"number":1,"text":"a = 1","mark_start":4,"mark_end":5}]}}]`
	if diff := cmp.Diff(want, string(b)); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

func TestErr(t *testing.T) {
	var none Diagnostics
	if none.Err() != nil || (Diagnostics{{Severity: Warning}}).Err() != nil {
		t.Error("warnings are no error")
	}
	r := at("a", 0, 1)
	ds := Diagnostics{{Severity: Warning, Summary: "w"}, {Severity: Error, Summary: "first", Fix: "mend", Range: &r}, Errorf("second")}
	err := fmt.Errorf("loading: %w", ds.Err())
	if got := err.Error(); got != "loading: x.hcl:1:1: first (mend) (and 1 more errors)" {
		t.Error(got)
	}
	var back Diagnostics
	if !errors.As(err, &back) || len(back) != 3 {
		t.Error("the diagnostics are lost")
	}
}

func TestExcerptIsBounded(t *testing.T) {
	src := strings.Repeat("é", 100_000)
	for _, at := range []int{0, 2, 100_000, 199_998} {
		s := Excerpt([]byte(src), Range{Start: Pos{Line: 1, Byte: at}, End: Pos{Line: 1, Byte: at + 2}})
		l := s.Lines[0]
		if len(l.Text) > excerptWidth+10 || !utf8.ValidString(l.Text) || l.Text[l.MarkStart:l.MarkEnd] != "é" {
			t.Errorf("at %d: %d bytes, marked %q", at, len(l.Text), l.Text[l.MarkStart:l.MarkEnd])
		}
	}
	if s := Excerpt([]byte("x"), Range{Start: Pos{Line: 1, Byte: 5}}); s != nil {
		t.Error("a range outside of the source has no excerpt")
	}
	if s := Excerpt([]byte("x"), Range{}); s != nil {
		t.Error("no range has no excerpt")
	}
}

func TestSuggest(t *testing.T) {
	options := []string{"entrypoint", "env", "args", "limits", "language", "command"}
	for given, want := range map[string]string{
		"entrypont": "entrypoint", "entry_point": "entrypoint", "limit": "limits", "ENV": "env", "agrs": "args", "lnaguage": "language",
		"colour": "", "": "", "x": "", "commands": "command", "args": "", "trams": "", "nv": "env", strings.Repeat("x", 1000): "",
	} {
		if got := Suggest(given, options); got != want {
			t.Errorf("Suggest(%.20q) = %q, want %q", given, got, want)
		}
	}
}

func TestQuote(t *testing.T) {
	for in, want := range map[string]string{
		"a": `"a"`, "a\"b\\": `"a\"b\\"`, "a\nb": `"a\nb"`, "\x1b": `"\x1b"`, "日本": `"日本"`, "\xff": `"\xff"`, "\u202e": `"\u202e"`,
		strings.Repeat("é", 50): `"` + strings.Repeat("é", 40) + `"…`,
	} {
		if got := Quote(in); got != want {
			t.Errorf("Quote(%q) = %s, want %s", in, got, want)
		}
	}
}

// FuzzText renders anything: no panic, no control characters, the mark inside the line.
func FuzzText(f *testing.F) {
	f.Add("a = 1\nb", 2, 3, 80)
	f.Add("\xff\x1b\t日本\r\n", 0, 5, 1)
	f.Add(strings.Repeat("0", 100)+strings.Repeat("\xb1", 600), 100, 101, 80)
	f.Fuzz(func(t *testing.T, src string, from, to, width int) {
		if from < 0 || to < from || to > len(src) {
			return
		}
		r := at(src, from, to)
		s := Excerpt([]byte(src), r)
		d := Diagnostic{Severity: Error, Summary: src, Detail: src, Fix: src, Context: src, Path: src, Range: &r, Snippet: s}
		text := d.Text(Style{Width: width % 300})
		for i := range len(text) {
			if c := text[i]; c < 0x20 && c != '\n' || c == 0x7f {
				t.Fatalf("control character in %q", text)
			}
		}
		if !utf8.ValidString(text) {
			t.Fatalf("invalid UTF-8 in %q", text)
		}
		for _, l := range s.Lines {
			if l.MarkStart < 0 || l.MarkEnd < l.MarkStart || l.MarkEnd > len(l.Text) {
				t.Fatalf("mark %d-%d in %q", l.MarkStart, l.MarkEnd, l.Text)
			}
		}
	})
}
