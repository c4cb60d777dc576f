package termsafe

import (
	"strings"
	"unicode"
)

// ShellWord writes a path or another argument so that a shell takes it for one word. It does not escape what a terminal
// would obey.
func ShellWord(arg string) string {
	if arg != "" && !strings.ContainsFunc(arg, func(r rune) bool {
		return !strings.ContainsRune("/._-+,=:@%", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) {
		return arg
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}
