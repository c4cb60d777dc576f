package termsafe

import (
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// Columns is the number of terminal columns that escaped text without line feeds takes.
func Columns(s string) int {
	n := 0
	for _, r := range s {
		switch {
		case r < utf8.RuneSelf:
			n++
		case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		default:
			n++
			if k := width.LookupRune(r).Kind(); k == width.EastAsianWide || k == width.EastAsianFullwidth {
				n++
			}
		}
	}
	return n
}

// Cut returns the beginning of escaped text that takes at most so many columns.
func Cut(s string, columns int) string {
	n := 0
	for i, r := range s {
		if n += Columns(string(r)); n > columns {
			return s[:i]
		}
	}
	return s
}
