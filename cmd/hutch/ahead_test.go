package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestGuess(t *testing.T) {
	for line, want := range map[string]struct {
		backend string
		files   []string
	}{
		"run --backend bwrap -- true":             {backend: "bwrap"},
		"run -q --backend=bwrap -- true":          {backend: "bwrap"},
		"run a.hcl b.hcl.json test --var x=1":     {files: []string{"a.hcl", "b.hcl.json"}},
		"run a.hcl --backend bwrap":               {backend: "bwrap", files: []string{"a.hcl"}},
		"run --backend bwrap -q d/a.hcl":          {backend: "bwrap", files: []string{"d/a.hcl"}},
		"run -- sh a.hcl --backend bwrap":         {},
		"run --backend":                           {},
		"run --backend bwrap --help":              {},
		"plan a.hcl":                              {},
		"":                                        {},
		"run --workspace . -m 1g -- python3 x.py": {},
	} {
		backend, files := guess(strings.Fields(line))
		if backend != want.backend || !cmp.Equal(files, want.files) {
			t.Errorf("%q: guessed %q and %q", line, backend, files)
		}
	}
}

func TestGuessSandbox(t *testing.T) {
	for line, want := range map[string]string{
		"exec box -- true":              "box",
		"exec -it -w /tmp box -- sh -i": "box",
		"exec -- true":                  "",
		"exec box":                      "",
		"exec box --timeout=3s -- true": "", // not where it is usually written
		"exec --help box -- true":       "",
		"exec box -- ls --help":         "box",
		"run box -- true":               "",
		"":                              "",
	} {
		if got := guessSandbox(strings.Fields(line)); got != want {
			t.Errorf("%q: guessed %q, want %q", line, got, want)
		}
	}
}

func TestAGuessThatDoesNotFit(t *testing.T) {
	a := &ahead{files: []string{"a.hcl", "b.hcl", "d/c.hcl"}}
	if !a.fits([]string{"d/x.hcl", "y.hcl"}) || a.fits([]string{"a.hcl"}) || a.fits(nil) || (&ahead{}).fits([]string{"a.hcl"}) || !(&ahead{}).fits(nil) {
		t.Error("a guess about lock files is taken for right that is wrong, or the other way round")
	}
}
