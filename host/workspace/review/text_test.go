package review

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestComposeIsExact(t *testing.T) {
	for seed := range 300 {
		rnd := rand.New(rand.NewPCG(uint64(seed), 3))
		random := func() string {
			var b strings.Builder
			for range rnd.IntN(1 + seed) {
				fmt.Fprintf(&b, "%d\n", rnd.IntN(1+seed/2))
			}
			s := b.String()
			if rnd.IntN(3) == 0 {
				s = strings.TrimSuffix(s, "\n")
			}
			return s
		}
		old, now := random(), random()
		d := diffText([]byte(old), []byte(now))
		if got := string(d.compose(func(int) bool { return true })); got != now {
			t.Fatalf("seed %d: all spans give %q, want %q", seed, got, now)
		}
		if got := string(d.compose(func(int) bool { return false })); got != old {
			t.Fatalf("seed %d: no span gives %q, want %q", seed, got, old)
		}
		for i := 1; i < len(d.spans); i++ {
			if d.spans[i].a < d.spans[i-1].b || d.spans[i].c < d.spans[i-1].d || d.spans[i].a == d.spans[i-1].b && d.spans[i].c == d.spans[i-1].d {
				t.Fatalf("seed %d: spans %v and %v overlap or touch", seed, d.spans[i-1], d.spans[i])
			}
		}
		for _, h := range d.hunks() {
			var oldLines, newLines int
			for _, l := range h.Lines {
				if l[0] != '+' {
					oldLines++
				}
				if l[0] != '-' {
					newLines++
				}
			}
			if oldLines != h.OldLines || newLines != h.NewLines {
				t.Fatalf("seed %d: the header %s is wrong: %d and %d lines", seed, h.Header(), oldLines, newLines)
			}
		}
	}
}

// TestManyScatteredChanges is about the library's limit of a hundred steps, beyond which it takes all that is left for
// one change.
func TestManyScatteredChanges(t *testing.T) {
	var old, now strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&old, "line %d\n", i)
		if i%10 == 5 {
			now.WriteString("changed ")
		}
		fmt.Fprintf(&now, "line %d\n", i)
	}
	d := diffText([]byte(old.String()), []byte(now.String()))
	added, removed := d.counts()
	if len(d.spans) != 2000 || added != 2000 || removed != 2000 {
		t.Errorf("%d spans, %d lines added, %d removed; want 2000 of each", len(d.spans), added, removed)
	}
}

func TestSplit(t *testing.T) {
	d := diffText([]byte("1\n2\n3\n4\n5\n6\n7\n"), []byte("one\n2\n3\n4\n5\n6\nseven\n"))
	hunks := d.hunks()
	if len(hunks) != 1 {
		t.Fatalf("%d hunks, want 1", len(hunks))
	}
	split := d.split(hunks[0])
	var headers []string
	for _, h := range split {
		headers = append(headers, h.Header())
	}
	if diff := cmp.Diff([]string{"@@ -1,4 +1,4 @@", "@@ -4,4 +4,4 @@"}, headers); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}

func TestQuote(t *testing.T) {
	for _, c := range [][2]string{
		{"plain/päth with space", "plain/päth with space"},
		{"tab\tline\n", `"tab\tline\n"`}, {`quo"te\`, `"quo\"te\\"`}, {"\x1b[2J", `"\033[2J"`}, {"caf\xe9", `"caf\351"`}, {"a\u202eb", `"a\342\200\256b"`},
	} {
		if got := Quote(c[0]); got != c[1] {
			t.Errorf("Quote(%q) is %s, want %s", c[0], got, c[1])
		}
	}
}
