package git

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-run/hutch/internal/gittest"
)

// TestEnds cuts a history with a merge:
//
//	first - second - merge - last
//	      \ side  /
func TestEnds(t *testing.T) {
	r := newRepo(t)
	commit := func(name string) string {
		gittest.Run(t, r.Dir, "commit", "-q", "--allow-empty", "-m", name)
		return gittest.Run(t, r.Dir, "rev-parse", "HEAD")
	}
	gittest.Run(t, r.Dir, "checkout", "-q", "-b", "side")
	side := commit("side")
	gittest.Run(t, r.Dir, "checkout", "-q", "main")
	second := commit("second")
	gittest.Run(t, r.Dir, "merge", "-q", "--no-ff", "-m", "merge", "side")
	merge := gittest.Run(t, r.Dir, "rev-parse", "HEAD")
	last := commit("last")
	for depth, want := range map[int][]string{0: nil, 1: {last}, 2: {merge}, 3: {second, side}, 4: nil, 100: nil} {
		got, err := r.Ends(t.Context(), last, depth)
		if err != nil || !same(got, want) {
			t.Errorf("depth %d: %v %v, want %v", depth, got, err, want)
		}
	}
	// A shallow clone ends where it was cut, and no later than asked for.
	dir := filepath.Join(t.TempDir(), "clone")
	gittest.Run(t, r.Dir, "clone", "-q", "--depth", "2", "file://"+r.Dir, dir)
	c, err := Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	for depth, want := range map[int][]string{0: {merge}, 1: {last}, 2: {merge}, 3: {merge}} {
		got, err := c.Ends(t.Context(), last, depth)
		if err != nil || !same(got, want) {
			t.Errorf("shallow clone, depth %d: %v %v, want %v", depth, got, err, want)
		}
	}
	// What git itself calls shallow is what we do.
	if got := strings.Fields(gittest.Run(t, dir, "rev-list", "--max-parents=0", "HEAD")); !same(got, []string{merge}) {
		t.Errorf("git's own: %v", got)
	}
}

func same(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(a, b)
}
