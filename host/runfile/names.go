package runfile

import (
	"maps"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"

	"github.com/hutch-run/hutch/host/diag"
)

// What names may look like. They end up in file names, flags and environment variables. The checks are written out,
// because compiling regular expressions would cost every start of the program.

const (
	runNameRule = "A name of a %s has 1 to 64 letters, digits, dots, dashes and underscores, and begins with a " +
		"letter or digit."
	backendNameRule  = "A name of a backend has 1 to 32 lower-case letters, digits and dashes, and begins with a letter."
	variableNameRule = "A name of a variable has 1 to 64 letters, digits, dashes and underscores, and begins with a " +
		"letter or underscore."
)

const (
	lower   = "abcdefghijklmnopqrstuvwxyz"
	letters = lower + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits  = "0123456789"
)

func validRunName(s string) bool      { return validName(s, 64, letters+digits, ".-_") }
func validBackendName(s string) bool  { return validName(s, 32, lower, digits+"-") }
func validVariableName(s string) bool { return validName(s, 64, letters+"_", digits+"-") }
func validEnvName(s string) bool      { return validName(s, 256, letters+"_", digits) }

// validName says which characters a name may begin with, and which ones may follow besides.
func validName(s string, most int, first, more string) bool {
	return s != "" && len(s) <= most && strings.IndexByte(first, s[0]) >= 0 && strings.Trim(s, first+more) == ""
}

func quote(s string) string { return diag.Quote(s) }

func suggestion(given string, options []string) string { return diag.DidYouMean(given, options) }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// list writes names as a, b and c, in their order.
func list(names []string) string {
	return english.WordSeries(slices.Sorted(slices.Values(names)), "and")
}

// quotedList writes words as "a", "b" or "c".
func quotedList(words []string) string { return english.WordSeries(quoteAll(words), "or") }
