package main

import (
	"os"
	"strings"
	"testing"
)

// TestQuickGrammars: a line that a quick grammar takes means what the whole one makes of it.
func TestQuickGrammars(t *testing.T) {
	lines := map[string]string{
		"run":  "run --backend bwrap -q -- true",
		"exec": "exec -it -e A=1 -w /tmp --timeout 3s box -- sh -c true",
		"diff": "diff box --stat src",
	}
	for name, make := range quick {
		args := strings.Fields(lines[name])
		u := newUI(os.Stdin, os.Stdout, os.Stderr)
		_, whole, wholeCall, err := parseWith(build(new(grammar)), u, args)
		if err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		_, own, call, err := parseWith(build(make()), u, args)
		if err != nil {
			t.Errorf("%q is not taken by its quick grammar: %v", args, err)
			continue
		}
		if own.Command() != whole.Command() || strings.Join(call.tail, " ") != strings.Join(wholeCall.tail, " ") {
			t.Errorf("%q: %q and %q, want %q and %q", args, own.Command(), call.tail, whole.Command(), wholeCall.tail)
		}
	}
}
