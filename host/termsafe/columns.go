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
