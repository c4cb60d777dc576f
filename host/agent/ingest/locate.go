package ingest

import (
	"fmt"
	"slices"
	"strings"
)

// locate finds where a hunk goes: the index of its first line. from is where the hunk before it ended, shift by how
// much the lines of the file have moved against the numbers in the patch. Lines must be the same, but for white space
// at their ends (loose). Where the hunk would fit in several places and nothing says which is meant, it fits nowhere.
func locate(t *text, h *Hunk, from, shift int) (pos int, loose bool, q *Problem) {
	old := h.old()
	for _, a := range h.Anchors {
		at, near := anchor(t.lines, a, from)
		if at < 0 {
			return 0, false, &Problem{Message: fmt.Sprintf("the line %q after @@ is not in the file", clip(a)), Hint: "give a line as it is in the file, or leave it out", Nearest: near}
		}
		from = at + 1
	}
	if len(old) == 0 {
		return place(t, h, from, shift)
	}
	if want := h.Start - 1 + shift; h.Start > 0 && want >= from && len(matches(t.lines[:min(want+len(old), len(t.lines))], old, want, false)) == 1 {
		return want, false, nil
	}
	all := matches(t.lines, old, 0, false)
	if len(all) == 0 {
		all, loose = matches(t.lines, old, 0, true), true
	}
	if h.AtEnd {
		all = slices.DeleteFunc(all, func(i int) bool { return i+len(old) != len(t.lines) })
	}
	candidates := slices.DeleteFunc(slices.Clone(all), func(i int) bool { return i < from })
	switch {
	case len(candidates) == 0 && len(all) > 0:
		return 0, false, &Problem{Message: fmt.Sprintf("its lines are in the file only before, at %s", lineList(all)), Hint: "give the hunks in the order of the file"}
	case len(candidates) == 0:
		near := nearest(t.lines, old)
		return 0, false, &Problem{Message: describeMiss(t.lines, old, near), Hint: "the lines that are taken away, and those around them, must be exactly as in the file: read it again", Nearest: near}
	case len(candidates) == 1 || len(h.Anchors) > 0:
		return candidates[0], loose, nil
	}
	if want := h.Start - 1 + shift; h.Start > 0 && slices.Contains(candidates, want) {
		return want, loose, nil
	}
	hint := "give more of the lines around"
	if h.Start == 0 && !h.anywhere {
		hint += ", or the line of the function or class that it is in after @@"
	}
	return 0, false, &Problem{Message: fmt.Sprintf("its lines are in the file %d times, at %s", len(candidates), lineList(candidates)), Hint: hint}
}

// place finds where a hunk goes that only adds lines.
func place(t *text, h *Hunk, from, shift int) (int, bool, *Problem) {
	at := h.Start - 1 + shift
	miss := &Problem{Message: "it only adds lines and nothing says where", Hint: "give some of the lines around"}
	switch {
	case h.anywhere && len(t.lines) > 0:
		miss.Message = "the text to search for is empty"
		miss.Hint = "give the lines that the new ones replace, and repeat them among the new ones"
	case h.AtEnd || len(t.lines) == 0:
		return len(t.lines), false, nil
	case len(h.Anchors) > 0:
		return from, false, nil
	case h.Start > 0 && at >= from && at <= len(t.lines):
		return at, false, nil
	case h.Start > 0:
		miss.Message = fmt.Sprintf("it adds lines at line %d, and the file has %d", h.Start, len(t.lines))
	}
	return 0, false, miss
}

// anchor finds the first line from a place on that is a, but for white space around it; else one that begins so.
func anchor(lines []string, a string, from int) (int, *Nearest) {
	for i := from; i < len(lines); i++ {
		if strings.TrimSpace(lines[i]) == a {
			return i, nil
		}
	}
	found := -1
	for i := from; i < len(lines); i++ {
		if strings.HasPrefix(strings.TrimSpace(lines[i]), a) {
			if found >= 0 {
				return -1, nil
			}
			found = i
		}
	}
	if found < 0 {
		return -1, nearest(lines, []string{a})
	}
	return found, nil
}

// matches are all places where old is.
func matches(lines, old []string, from int, loose bool) []int {
	same := func(a, b string) bool { return a == b }
	if loose {
		same = func(a, b string) bool { return strings.TrimRight(a, " \t\r") == strings.TrimRight(b, " \t\r") }
	}
	var out []int
	work := 0
	for i := from; i+len(old) <= len(lines); i++ {
		n := 0
		for n < len(old) && same(lines[i+n], old[n]) {
			n++
		}
		if n == len(old) {
			out = append(out, i)
		}
		// A file of one line a million times, and a hunk of it half a million times, must end as well.
		if work += n + 1; work > maxWork {
			return nil
		}
	}
	return out
}

// maxWork bounds the comparisons of lines for one hunk.
const maxWork = 20_000_000

func lineList(at []int) string {
	const most = 8
	var s []string
	for _, i := range at[:min(len(at), most)] {
		s = append(s, fmt.Sprint(i+1))
	}
	text := "lines " + strings.Join(s, ", ")
	if len(at) == 1 {
		text = "line " + s[0]
	}
	if len(at) > most {
		text += fmt.Sprintf(" and %d more", len(at)-most)
	}
	return text
}

const (
	maxNear     = 12  // lines that are shown of a file
	maxNearLine = 200 // bytes of each
)

// nearest finds the lines of a file that are most like those looked for; nil when nothing is.
func nearest(lines, old []string) *Nearest {
	if len(old) == 0 || len(lines) == 0 {
		return nil
	}
	want := map[string]bool{}
	var words []map[string]bool
	for _, l := range old[:min(len(old), 200)] {
		words = append(words, wordsOf(l))
		if s := squeeze(l); s != "" {
			want[s] = true
		}
	}
	if len(lines) > 50_000 {
		lines = lines[:50_000]
	}
	// How much each line of the file is like any of those looked for, and then the window with the most of it.
	score := make([]int, len(lines))
	work := 0
	for i, l := range lines {
		if want[squeeze(l)] {
			score[i] = 100
			continue
		}
		if work > maxWork/100 || len(l) > 2000 {
			continue
		}
		has := wordsOf(l)
		for _, w := range words {
			work += len(has) + 1
			if len(w) == 0 || len(has) == 0 {
				continue
			}
			both := 0
			for k := range has {
				if w[k] {
					both++
				}
			}
			if s := 90 * 2 * both / (len(w) + len(has)); s > score[i] {
				score[i] = s
			}
		}
	}
	size := min(len(old), len(lines))
	sum := 0
	for _, s := range score[:size] {
		sum += s
	}
	best, at := sum, 0
	for i := size; i < len(lines); i++ {
		sum += score[i] - score[i-size]
		if sum > best {
			best, at = sum, i-size+1
		}
	}
	if best < 30*size || best < 40 {
		if len(lines) > maxNear {
			return nil
		}
		at, size = 0, len(lines) // nothing is alike, but all of it can be shown
	}
	n := &Nearest{First: at + 1}
	for _, l := range lines[at : at+min(size, maxNear)] {
		if len(l) > maxNearLine {
			l = strings.ToValidUTF8(l[:maxNearLine], "") + "…"
		}
		n.Lines = append(n.Lines, l)
	}
	return n
}

func wordsOf(s string) map[string]bool {
	if len(s) > 2000 {
		s = s[:2000]
	}
	out := map[string]bool{}
	for _, w := range strings.FieldsFunc(s, func(r rune) bool {
		return !(r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r > 127)
	}) {
		out[w] = true
	}
	return out
}

// squeeze takes all white space out of a line.
func squeeze(s string) string { return strings.Join(strings.Fields(s), "") }

// describeMiss says what keeps the lines from being found.
func describeMiss(lines, old []string, near *Nearest) string {
	if near == nil {
		return "its lines are not in the file"
	}
	at := near.First - 1
	for i, l := range old {
		if at+i >= len(lines) {
			break
		}
		if lines[at+i] == l {
			continue
		}
		if squeeze(lines[at+i]) == squeeze(l) {
			return fmt.Sprintf("its lines are not in the file; line %d has other white space than the patch: %q, not %q", at+i+1, clip(lines[at+i]), clip(l))
		}
		return fmt.Sprintf("its lines are not in the file; line %d is %q and not %q", at+i+1, clip(lines[at+i]), clip(l))
	}
	return "its lines are not in the file"
}
