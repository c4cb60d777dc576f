package runfile

import (
	"sort"
	"strings"

	"github.com/hutch-run/hutch/host/diag"
)

func quote(s string) string { return diag.Quote(s) }

func suggestion(given string, options []string) string { return diag.DidYouMean(given, options) }

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// quotedList writes words as "a", "b" or "c".
func quotedList(words []string) string {
	q := make([]string, len(words))
	for i, w := range words {
		q[i] = quote(w)
	}
	if len(q) < 2 {
		return strings.Join(q, "")
	}
	return strings.Join(q[:len(q)-1], ", ") + " or " + q[len(q)-1]
}
