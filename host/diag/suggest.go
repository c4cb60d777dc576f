package diag

import (
	"sort"
	"strings"

	"github.com/hutch-run/hutch/host/termsafe"
)

// Suggest returns the option that given was most likely meant to be, or "" when none is near. It looks at a bounded
// part of both.
func Suggest(given string, options []string) string {
	const most = 64
	if given == "" || len(given) > most {
		return ""
	}
	sorted := append([]string(nil), options...)
	sort.Strings(sorted)
	g := strings.ToLower(given)
	best, bestDistance := "", min(3, 1+len(given)/3)+1
	for _, o := range sorted {
		if o == given || o == "" || len(o) > most {
			continue
		}
		if d := distance(g, strings.ToLower(o)); d < bestDistance && d < max(len(o), len(given)) {
			best, bestDistance = o, d
		}
	}
	return best
}

// DidYouMean is Suggest as the text of a Fix.
func DidYouMean(given string, options []string) string {
	if s := Suggest(given, options); s != "" {
		return "did you mean " + Quote(s) + "?"
	}
	return ""
}

// distance counts the letters to insert, remove, replace or swap with their neighbour to come from a to b.
func distance(a, b string) int {
	before, prev, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, prev, row = prev, row, before
	}
	return prev[len(b)]
}

// Quote shows a string from somewhere else inside a sentence: quoted, escaped, and cut when it is long.
func Quote(s string) string {
	const most = 80
	if len(s) > most {
		return quoted(strings.ToValidUTF8(s[:most], "")) + "…"
	}
	return quoted(s)
}

func quoted(s string) string {
	return `"` + termsafe.Line(strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s)) + `"`
}
