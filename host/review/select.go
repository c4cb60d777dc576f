package review

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// HunkRef names hunks of one file: 0 is the change of its permissions, 1 the first hunk that diff shows.
type HunkRef struct {
	Path    string
	Numbers []int // ascending, each once
}

// maxHunkNumber bounds what a range may stand for.
const maxHunkNumber = 1_000_000

// ParseHunks reads FILE:1,3-5. The file's name may hold colons.
func ParseHunks(s string) (HunkRef, error) {
	i := strings.LastIndexByte(s, ':')
	if i <= 0 || i == len(s)-1 {
		return HunkRef{}, fmt.Errorf("%q does not name hunks: write FILE:1,3-5 with the numbers that diff counts", s)
	}
	r := HunkRef{Path: path.Clean(s[:i])}
	for part := range strings.SplitSeq(s[i+1:], ",") {
		from, to, isRange := strings.Cut(part, "-")
		a, err := hunkNumber(from)
		b := a
		if err == nil && isRange {
			b, err = hunkNumber(to)
		}
		if err == nil && b < a {
			err = fmt.Errorf("the range %q is upside down", part)
		}
		if err == nil && b-a >= 10_000 {
			err = fmt.Errorf("the range %q is longer than 10000", part)
		}
		if err != nil {
			return HunkRef{}, fmt.Errorf("%q: %w", s, err)
		}
		for n := a; n <= b; n++ {
			r.Numbers = append(r.Numbers, n)
		}
	}
	slices.Sort(r.Numbers)
	r.Numbers = slices.Compact(r.Numbers)
	return r, nil
}

func hunkNumber(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil || n > maxHunkNumber {
		return 0, fmt.Errorf("%q is not the number of a hunk", s)
	}
	return int(n), nil
}

// PickHunks picks the named hunks. Those of a file in conflict, which lead from the project's version to the sandbox's,
// count as a decision about it.
func (r *Review) PickHunks(ctx context.Context, refs []HunkRef) ([]Pick, error) {
	merged := map[*Change]*Pick{}
	var order []*Change
	for _, ref := range refs {
		rel, err := r.Subject.paths([]string{ref.Path})
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(r.Changes, func(c *Change) bool { return c.Path == rel[0] })
		if i < 0 {
			return nil, fmt.Errorf("nothing changed at %s", Quote(ref.Path))
		}
		c := r.Changes[i]
		t, err := r.content(ctx, c, r.project)
		if err != nil {
			return nil, err
		}
		if c.Old.Type != File || c.New.Type != File || t.note != "" {
			return nil, fmt.Errorf("%s has no hunks: %s", Quote(ref.Path), cmpOr(t.note, "it is "+string(c.Kind)+" as a whole"))
		}
		pick := merged[c]
		if pick == nil {
			pick = &Pick{Change: c, Settled: c.Conflict != ""}
			merged[c], order = pick, append(order, c)
		}
		var hunks []*Hunk
		if t.text != nil {
			hunks = t.text.hunks()
		}
		for _, n := range ref.Numbers {
			switch {
			case n == 0 && c.Old.Mode == c.New.Mode:
				return nil, fmt.Errorf("%s keeps its mode: there is no hunk 0", Quote(ref.Path))
			case n == 0:
				pick.Mode = true
			case n > len(hunks):
				return nil, fmt.Errorf("%s has %s, not %d", Quote(ref.Path), plural(len(hunks), "hunk"), n)
			default:
				pick.Hunks = append(pick.Hunks, hunks[n-1])
			}
		}
	}
	var picks []Pick
	for _, c := range order {
		picks = append(picks, *merged[c])
	}
	return picks, nil
}
