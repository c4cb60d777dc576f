package runfile

import (
	"maps"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/host/diag"
)

func quote(s string) string { return diag.Quote(s) }

func suggestion(given string, options []string) string { return diag.DidYouMean(given, options) }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// quotedList writes words as "a", "b" or "c".
func quotedList(words []string) string {
	q := quoteAll(words)
	if len(q) < 2 {
		return strings.Join(q, "")
	}
	return strings.Join(q[:len(q)-1], ", ") + " or " + q[len(q)-1]
}
