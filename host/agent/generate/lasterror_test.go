package generate

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
)

// FuzzFindError reads what a program of each language may write: an error is in one of its files, at a line that can
// be.
func FuzzFindError(f *testing.F) {
	for _, s := range []string{
		"Traceback (most recent call last):\n  File \"/w/main.py\", line 3, in <module>\nModuleNotFoundError: No module named 'x'\n",
		"  File \"/w/main.py\", line 99999999999999999999\nSyntaxError: x", "MemoryError", "[Errno -2] x",
		"/w/a.js:3\n\nUncaught Error [E]: x\n    at f (/w/a.js:4:5) {\n  code: 'ENOENT' }",
		"main.go:3:4: package x is not in std", "panic: x\n\t/w/main.go:7 +0x1", "main.sh: line 3: x: not found", "main.sh: 0: cannot fork",
		"/w/main.rb:3:in `f': cannot load such file -- x (LoadError)\n\tfrom /w/main.rb:1", "syntax error at main.pl line 3, near", "Can't locate A/B.pm in @INC at main.pl line 1.",
	} {
		f.Add(s)
	}
	files := []string{"main.py", "a.js", "main.go", "main.sh", "main.rb", "main.pl", "d/main.py"}
	languages := slices.Sorted(maps.Keys(errorForms))
	f.Fuzz(func(t *testing.T, stderr string) {
		for _, lang := range languages {
			e, ok := findError(lang, stderr, files)
			if !ok {
				continue
			}
			if e.fault == "" || strings.Contains(e.message, "\n") || !strings.Contains(stderr, e.message) || e.file != "" && !slices.Contains(files, e.file) ||
				e.line < 0 || e.line > math.MaxInt32 || e.file == "" && e.line != 0 {
				t.Errorf("%s: %+v", lang, e)
			}
		}
	})
}
