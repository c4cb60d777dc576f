package diag

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Escape makes text harmless for a terminal: control characters, invalid UTF-8 and the characters that reorder a line
// become visible escapes. Line feeds and tabs stay.
func Escape(s string) string {
	clean := true
	for i := 0; i < len(s) && clean; i++ {
		c := s[i]
		clean = c < utf8.RuneSelf && (c >= 0x20 && c != 0x7f || c == '\n' || c == '\t')
	}
	if clean {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '\n' || r == '\t':
			b.WriteRune(r)
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r >= utf8.RuneSelf && deceptive(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// deceptive tells the characters that do not show as themselves: C1 controls, separators, and those that change
// direction. Joiners and variation selectors stay, because text in many scripts needs them.
func deceptive(r rune) bool {
	return unicode.IsControl(r) || r == 0x2028 || r == 0x2029 || r == 0xfeff || r == 0x061c ||
		r >= 0x200e && r <= 0x200f || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}
