package diag

import (
	"sort"
	"strings"

	"github.com/agext/levenshtein"

	"github.com/hutch-run/hutch/host/termsafe"
)

// Suggest returns the option that given was most likely meant to be, or "" when none is near. An option that differs in
// more than one character begins like given. It looks at a bounded part of both.
func Suggest(given string, options []string) string {
	const most = 64
	if given == "" || len(given) > most {
		return ""
	}
	sorted := append([]string(nil), options...)
	sort.Strings(sorted)
	g := strings.ToLower(given)
	best, bestScore := "", 2*min(3, 1+len(given)/3)+2
	for _, o := range sorted {
		if o == given || o == "" || len(o) > most {
			continue
		}
		l := strings.ToLower(o)
		d := levenshtein.Distance(g, l, nil)
		if d >= max(len(o), len(given)) || d > 1 && l[0] != g[0] {
			continue
		}
		score := 2 * d
		if len(l) != len(g) {
			score++ // two letters are swapped more often than another is typed and one forgotten
		}
		if score < bestScore {
			best, bestScore = o, score
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
