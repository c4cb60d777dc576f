//go:build linux

package files

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hutch-run/hutch/internal/overlaytest"
	"github.com/hutch-run/hutch/sdk"
)

// TestToolsSeeTheOverlay does random operations on a real overlay, and after every few of them compares each tool's
// answer with what a program sees there.
func TestToolsSeeTheOverlay(t *testing.T) {
	seeds := 8
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			lower := overlaytest.Lower(t)
			m := overlaytest.Start(t, lower, false)
			b := newBox(t, true, nil, nil)
			b.ready.Layers = &sdk.Layers{Lower: lower, Upper: m.Upper}
			b.ready.Output = ""
			f := b.open(Options{})
			r := rand.New(rand.NewPCG(uint64(seed), 11))
			for step := range 60 {
				op := overlaytest.Random(r)
				a := m.Do(op)
				compareTools(t, f, m, a)
				if t.Failed() {
					t.Fatalf("after step %d, %s", step, op)
				}
			}
		})
	}
}

func compareTools(t *testing.T, f *Files, m *overlaytest.Mount, a overlaytest.Answer) {
	t.Helper()
	files := m.Do(overlaytest.Op{Do: "files"}).Files
	l, err := f.List(t.Context(), ListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, e := range l.Entries {
		lines = append(lines, lineOf(t, f, e))
		if s, err := f.Stat(t.Context(), e.Path); err != nil {
			t.Errorf("stat: %v", err)
		} else if diff := cmp.Diff(e, *s); diff != "" {
			t.Errorf("list and stat of %s:\n%s", e.Path, diff)
		}
	}
	slices.Sort(lines)
	if diff := cmp.Diff(a.View, lines); diff != "" {
		t.Errorf("list (-overlay +tools):\n%s", diff)
	}
	for _, depth := range []int{1, 2} {
		l, err := f.List(t.Context(), ListRequest{Depth: depth})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, line := range a.View {
			if strings.Count(strings.Fields(line)[0], "/") < depth {
				n++
			}
		}
		if len(l.Entries) != n {
			t.Errorf("depth %d: %d entries, the overlay has %d", depth, len(l.Entries), n)
		}
	}
	compareGrep(t, f, files)
}

// lineOf is the line of overlaytest.View for an entry, with its content as Read gives it.
func lineOf(t *testing.T, f *Files, e Entry) string {
	t.Helper()
	mode := map[string]fs.FileMode{"file": 0, "directory": fs.ModeDir, "symlink": fs.ModeSymlink}[e.Type]
	bits, err := strconv.ParseUint(e.Mode, 8, 12)
	if err != nil {
		t.Fatal(err)
	}
	var content []byte
	if e.Type == "file" {
		c, err := f.Read(t.Context(), ReadRequest{Path: e.Path})
		if err != nil {
			t.Errorf("read %s: %v", e.Path, err)
			return ""
		}
		content = c.Data
	}
	return overlaytest.Line(e.Path, mode|fs.FileMode(bits), content, e.Target)
}

// compareGrep searches for texts of every file, and for what no file holds.
func compareGrep(t *testing.T, f *Files, files map[string][]byte) {
	t.Helper()
	for _, pattern := range []string{"a", "data [0-9]*7", "more", "^d", "nothing like this"} {
		m, err := newMatcher(GrepRequest{Pattern: pattern})
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for name, b := range files {
			for _, n := range naive(m.line, b) {
				want = append(want, fmt.Sprintf("%s:%d", name, n))
			}
		}
		slices.Sort(want)
		got, err := f.Grep(t.Context(), GrepRequest{Pattern: pattern})
		if err != nil {
			t.Fatal(err)
		}
		var have []string
		for _, file := range got.Files {
			for _, l := range file.Lines {
				have = append(have, fmt.Sprintf("%s:%d", file.Path, l.Number))
				if lines := bytes.Split(files[file.Path], []byte("\n")); string(lines[l.Number-1]) != l.Text {
					t.Errorf("%s:%d is %q, the overlay has %q", file.Path, l.Number, l.Text, lines[l.Number-1])
				}
			}
		}
		slices.Sort(have)
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("grep %q (-overlay +tools):\n%s", pattern, diff)
		}
		if got.Searched != len(files) {
			t.Errorf("grep looked into %d files, the overlay has %d", got.Searched, len(files))
		}
	}
}
