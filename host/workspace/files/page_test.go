package files

import (
	"fmt"
	"slices"
	"testing"
)

// Pages of a search, put together, are the search, whatever the order in which directories were looked at.
func TestGrepPages(t *testing.T) {
	tree := map[string]string{}
	var want []string
	for d := range 30 {
		for f := range 4 {
			name := fmt.Sprintf("d%02d/f%d.txt", d, f)
			for l := range d%3 + 2 {
				tree[name] += fmt.Sprintf("before %d\nneedle %s %d\nafter\n", l, name, l)
				want = append(want, fmt.Sprintf("needle %s %d", name, l))
			}
		}
	}
	both(t, tree, nil, func(t *testing.T, f *Files, _ *box) {
		for _, size := range []int{7, 50, len(want), len(want) + 1} {
			var got []string
			for skip, more := 0, true; more; {
				m, err := f.Grep(t.Context(), GrepRequest{Pattern: "^needle", Skip: skip, Max: size, Before: 1, After: 1})
				if err != nil {
					t.Fatal(err)
				}
				if m.Truncated && m.Count != size {
					t.Fatalf("page at %d: %d matches and more of them, want %d", skip, m.Count, size)
				}
				for _, file := range m.Files {
					got = append(got, pageLines(t, file)...)
				}
				skip, more = skip+m.Count, m.Truncated
			}
			if !slices.Equal(got, want) {
				t.Errorf("pages of %d: %d matches, want %d in path order", size, len(got), len(want))
			}
		}
		if m, err := f.Grep(t.Context(), GrepRequest{Pattern: "needle", Skip: len(want)}); err != nil || len(m.Files) > 0 || m.Truncated {
			t.Errorf("after the end: %+v, %v", m, err)
		}
	})
}

// pageLines are the lines that match, each of which has its context.
func pageLines(t *testing.T, m Match) (out []string) {
	t.Helper()
	for i, l := range m.Lines {
		if !l.Match {
			continue
		}
		out = append(out, l.Text)
		if i == 0 || m.Lines[i-1].Number != l.Number-1 || i+1 == len(m.Lines) || m.Lines[i+1].Number != l.Number+1 {
			t.Errorf("%s:%d lacks its context", m.Path, l.Number)
		}
	}
	return out
}
