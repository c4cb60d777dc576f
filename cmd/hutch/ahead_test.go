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
		"run a.hcl --backend bwrap":               {backend: "bwrap"},
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
