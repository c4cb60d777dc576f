package ingest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"unicode/utf8"

	"github.com/hutch-run/hutch/host/judge"

	"github.com/hutch-run/hutch/sdk/safepath"
)

// FuzzParse reads anything in any format, does all that can be done with what came of it, and checks what is promised
// whatever the answer is.
func FuzzParse(f *testing.F) {
	for _, list := range readCorpus(f) {
		for _, c := range list {
			var first string
			for _, s := range c.tree {
				first = s
			}
			f.Add([]byte(c.answer), uint8(slices.Index(Formats, c.format)+1), first)
		}
	}
	f.Fuzz(func(t *testing.T, answer []byte, format uint8, file string) {
		var want Format
		if n := int(format) % (len(Formats) + 1); n > 0 {
			want = Formats[n-1]
		}
		a, err := Parse(answer, want)
		if err != nil {
			checkError(t, err)
			return
		}
		if want != "" && a.Format != want {
			t.Errorf("read as %s, asked for %s", a.Format, want)
		}
		if len(a.Files)+len(a.Changes) == 0 {
			t.Error("neither files nor changes, and no error")
		}
		set := safepath.Set{}
		for i, f := range a.Files {
			if err := set.AddFile(f.Path); err != nil {
				t.Errorf("a path that must not be: %v", err)
			}
			if f.Mode&^0o777 != 0 || f.Mode == 0 {
				t.Errorf("the mode of %q is %o", f.Path, f.Mode)
			}
			if i > 0 && a.Files[i-1].Path >= f.Path {
				t.Error("the files are not sorted")
			}
		}
		tree := memTree{}
		for _, c := range a.Changes {
			for _, p := range []string{c.Path, c.To} {
				if p == "" && c.Path != "" {
					continue
				}
				if err := safepath.Check(p); err != nil {
					t.Errorf("a path that must not be: %v", err)
				}
			}
			if c.Op != Add {
				tree[c.Path] = file
			}
		}
		if p, err := a.Program(Program{}); err != nil {
			checkError(t, err)
		} else if !slices.ContainsFunc(a.Files, func(f File) bool { return f.Path == p.Entrypoint }) {
			t.Errorf("the entrypoint %q is no file", p.Entrypoint)
		}
		out, _, err := a.Apply(tree)
		if err != nil {
			checkError(t, err)
			return
		}
		for _, o := range out {
			if err := safepath.Check(o.Path); err != nil {
				t.Errorf("a path that must not be: %v", err)
			}
		}
	})
}

// FuzzSave writes whatever can be read as files, and checks that nothing comes to lie outside of the directory.
func FuzzSave(f *testing.F) {
	for _, list := range readCorpus(f) {
		for _, c := range list {
			f.Add([]byte(c.answer))
		}
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		if len(answer) > 1<<16 {
			return
		}
		a, err := Parse(answer, "")
		if err != nil || len(a.Files) == 0 || len(a.Files) > 50 {
			return
		}
		p, err := a.Program(Program{})
		if err != nil {
			return
		}
		outer := t.TempDir()
		dir := filepath.Join(outer, "run")
		if _, err := Save(dir, a, Run{Name: "fuzz", Program: p}, answer, map[judge.Rule]bool{judge.Git: true, judge.Tools: true}); err != nil {
			var perr *fs.PathError
			if !errors.As(err, &perr) {
				t.Errorf("%T: %v", err, err)
			}
		}
		entries, err := os.ReadDir(outer)
		if err != nil || len(entries) > 1 || len(entries) == 1 && entries[0].Name() != "run" {
			t.Errorf("outside lie %v %v", entries, err)
		}
		if len(entries) == 0 {
			return
		}
		var got []string
		err = filepath.WalkDir(filepath.Join(dir, CodeDir), func(p string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				rel, _ := filepath.Rel(filepath.Join(dir, CodeDir), p)
				got = append(got, filepath.ToSlash(rel))
			}
			return err
		})
		slices.Sort(got)
		if want := sortedNames(a.Files); err != nil || !slices.Equal(got, want) {
			t.Errorf("there are %q %v, want %q", got, err, want)
		}
	})
}

func checkError(t *testing.T, err error) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Errorf("an error of type %T: %v", err, err)
		return
	}
	if len(e.Problems) == 0 || len(e.Problems) > mostProblems {
		t.Errorf("the error has %d problems", len(e.Problems))
	}
	for i := range e.Problems {
		q := &e.Problems[i]
		if q.Message == "" || !utf8.ValidString(q.Error()) || len(q.Error()) > 20_000 {
			t.Errorf("a problem reads %.200q", q.Error())
		}
	}
}
