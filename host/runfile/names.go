package runfile

import (
	"maps"
	"slices"
	"strings"

	"github.com/hutch-run/hutch/host/diag"
)

// What names may look like. They end up in file names, flags and environment variables. The checks are written out,
// because compiling regular expressions would cost every start of the program.

const (
	runNameRule      = "A name of a %s has 1 to 64 letters, digits, dots, dashes and underscores, and begins with a letter or digit."
	backendNameRule  = "A name of a backend has 1 to 32 lower-case letters, digits and dashes, and begins with a letter."
	variableNameRule = "A name of a variable has 1 to 64 letters, digits, dashes and underscores, and begins with a letter or underscore."
)

func validRunName(s string) bool {
	return validName(s, 64, func(c byte, first bool) bool {
		return letter(c) || digit(c) || !first && (c == '.' || c == '-' || c == '_')
	})
}

func validBackendName(s string) bool {
	return validName(s, 32, func(c byte, first bool) bool { return c >= 'a' && c <= 'z' || !first && (digit(c) || c == '-') })
}

func validVariableName(s string) bool {
	return validName(s, 64, func(c byte, first bool) bool { return letter(c) || c == '_' || !first && (digit(c) || c == '-') })
}

func validEnvName(s string) bool {
	return validName(s, 256, func(c byte, first bool) bool { return letter(c) || c == '_' || !first && digit(c) })
}

func letter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

func digit(c byte) bool { return c >= '0' && c <= '9' }

func validName(s string, most int, good func(c byte, first bool) bool) bool {
	for i := range len(s) {
		if !good(s[i], i == 0) {
			return false
		}
	}
	return s != "" && len(s) <= most
}

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
