package ingest

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "rewrite the golden results of the corpus")

// The corpus is testdata/corpus/*.txtar. A case NAME has the members
//
//	NAME.answer      what a model answered; lines that would end the member begin with >, and so do all others then
//	NAME.format      the format that is asked for; without it, it is found out
//	NAME.tree/PATH   a file of the directory that a patch is for
//	NAME.want        what comes of it, written by go test -update
type corpusCase struct {
	name, answer string
	format       Format
	tree         memTree
	want         int // index of the member; -1 for none yet
	after        int // index of the last member of the case
}

func readCorpus(tb testing.TB) map[string][]corpusCase {
	tb.Helper()
	paths, err := filepath.Glob("testdata/corpus/*.txtar")
	if err != nil || len(paths) == 0 {
		tb.Fatalf("no corpus: %v", err)
	}
	out := map[string][]corpusCase{}
	for _, p := range paths {
		out[p] = casesOf(tb, p, parseCorpus(tb, p))
	}
	return out
}

func parseCorpus(tb testing.TB, path string) *txtar.Archive {
	a, err := txtar.ParseFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

func casesOf(tb testing.TB, path string, a *txtar.Archive) []corpusCase {
	var out []corpusCase
	for i, f := range a.Files {
		name, part, ok := strings.Cut(f.Name, ".")
		if !ok {
			tb.Fatalf("%s: member %q has no kind", path, f.Name)
		}
		if len(out) == 0 || out[len(out)-1].name != name {
			if slices.ContainsFunc(out, func(c corpusCase) bool { return c.name == name }) {
				tb.Fatalf("%s: case %s is there twice", path, name)
			}
			out = append(out, corpusCase{name: name, want: -1})
		}
		c := &out[len(out)-1]
		c.after = i
		switch tree, inTree := strings.CutPrefix(part, "tree/"); {
		case part == "answer":
			c.answer = unquote(string(f.Data))
		case part == "format":
			c.format = Format(strings.TrimSpace(string(f.Data)))
		case part == "want":
			c.want = i
		case inTree:
			if c.tree == nil {
				c.tree = memTree{}
			}
			c.tree[tree] = unquote(string(f.Data))
		default:
			tb.Fatalf("%s: member %q is of no known kind", path, f.Name)
		}
	}
	return out
}

func unquote(s string) string {
	if s == "" {
		return s
	}
	var b strings.Builder
	for line := range strings.Lines(s) {
		rest, ok := strings.CutPrefix(line, ">")
		if !ok {
			return s
		}
		b.WriteString(rest)
	}
	return b.String()
}

func quote(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		b.WriteString(">" + line)
	}
	return b.String()
}

// memTree is a directory in memory.
type memTree map[string]string

func (t memTree) Read(name string) ([]byte, fs.FileMode, error) {
	s, ok := t[name]
	if !ok {
		return nil, 0, fs.ErrNotExist
	}
	return []byte(s), 0o644, nil
}

func (t memTree) Names() []string {
	var out []string
	for n := range t {
		out = append(out, n)
	}
	return out
}

func TestCorpus(t *testing.T) {
	cases := 0
	for path, list := range readCorpus(t) {
		a := parseCorpus(t, path)
		changed := map[int]string{} // results by the member after which, or in which, they go
		for _, c := range list {
			cases++
			got := outcome(&c)
			want := ""
			if c.want >= 0 {
				want = string(a.Files[c.want].Data)
			}
			if strings.Contains("\n"+got, "\n-- ") { // it would end the member
				got = quote(got)
			}
			if *update {
				changed[c.after] = got
				if c.want >= 0 {
					a.Files[c.want].Data = []byte(got)
					delete(changed, c.after)
				}
				continue
			}
			t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar")+"/"+c.name, func(t *testing.T) {
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("(-want +got):\n%s", d)
				}
			})
		}
		if !*update {
			continue
		}
		var files []txtar.File
		for i, f := range a.Files {
			files = append(files, f)
			if got, ok := changed[i]; ok {
				name, _, _ := strings.Cut(f.Name, ".")
				files = append(files, txtar.File{Name: name + ".want", Data: []byte(got)})
			}
		}
		a.Files = files
		if err := os.WriteFile(path, txtar.Format(a), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if cases < 150 {
		t.Errorf("the corpus has %d cases, and should have 150", cases)
	}
}

// outcome does with an answer all that can be done with it, and writes down what came of it.
func outcome(c *corpusCase) string {
	var b strings.Builder
	a, err := Parse([]byte(c.answer), c.format)
	if err != nil {
		writeError(&b, err)
		return b.String()
	}
	fmt.Fprintf(&b, "format %s\n", a.Format)
	if c.tree == nil && len(a.Files) > 0 {
		for _, f := range a.Files {
			fmt.Fprintf(&b, "file %s %04o line %d\n", f.Path, f.Mode, f.Line)
			writeText(&b, f.Content)
		}
		p, err := a.Program(Program{})
		if err != nil {
			b.WriteString("no program\n")
			writeError(&b, err)
		} else {
			fmt.Fprintf(&b, "run %s", p.Entrypoint)
			if p.Language != "" {
				fmt.Fprintf(&b, " as %s", p.Language)
			}
			if len(p.Dependencies) > 0 {
				fmt.Fprintf(&b, " with %q", p.Dependencies)
			}
			b.WriteByte('\n')
		}
	} else {
		out, notes, err := a.Apply(c.tree)
		if err != nil {
			writeError(&b, err)
		}
		for _, o := range out {
			switch {
			case o.Deleted:
				fmt.Fprintf(&b, "delete %s\n", o.Path)
				continue
			case o.Created:
				fmt.Fprintf(&b, "create %s %04o\n", o.Path, o.Mode)
			default:
				fmt.Fprintf(&b, "change %s %04o\n", o.Path, o.Mode)
			}
			writeText(&b, o.Content)
		}
		for _, n := range notes {
			fmt.Fprintf(&b, "note %s\n", n)
		}
	}
	for _, n := range a.Notes {
		fmt.Fprintf(&b, "note %s\n", n)
	}
	return b.String()
}

func writeText(b *strings.Builder, content []byte) {
	for line := range strings.Lines(string(content)) {
		text, ended := strings.CutSuffix(line, "\n")
		if text, cr := strings.CutSuffix(text, "\r"); cr {
			fmt.Fprintf(b, "  | %s\\r\n", text)
			continue
		}
		fmt.Fprintf(b, "  | %s\n", text)
		if !ended {
			b.WriteString("  \\ no newline\n")
		}
	}
}

func writeError(b *strings.Builder, err error) {
	var e *Error
	if !errors.As(err, &e) {
		fmt.Fprintf(b, "failed %v\n", err)
		return
	}
	for i := range e.Problems {
		fmt.Fprintf(b, "problem %s\n", e.Problems[i].Error())
		if h := e.Problems[i].Hint; h != "" {
			fmt.Fprintf(b, "  hint %s\n", h)
		}
	}
	if e.More > 0 {
		fmt.Fprintf(b, "and %d more\n", e.More)
	}
}
