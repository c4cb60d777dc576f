package diag

import (
	"sort"
	"strings"

	"github.com/agext/levenshtein"

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
		if d := levenshtein.Distance(g, strings.ToLower(o), nil); d < bestDistance && d < max(len(o), len(given)) {
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
