// Package termsafe makes text that untrusted code wrote harmless on a terminal.
//
// Escape sequences can retitle a window, fill the clipboard, move the cursor over what was printed before, or make
// a terminal answer as if the user had typed. Everything but printable characters, tab and newline is therefore
// shown as a visible escape (\x1b, \u202e). Only a [Writer] lets two things more through, because without them the
// live output of honest programs is unreadable: colours (SGR sequences, which change how characters look and
// nothing else) and a lone carriage return (which can only overwrite what the same program printed on that line).
package termsafe

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// String returns s with everything that could act on a terminal shown as a visible escape; newlines and tabs stay.
func String(s string) string { return escape(s, true) }

// Line is [String] for text that has to stay on one line: newlines and tabs are shown as escapes too.
func Line(s string) string { return escape(s, false) }

func escape(s string, lines bool) string {
	if clean(s, lines) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 16)
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if safe(r, n) || lines && (r == '\n' || r == '\t') {
			b.WriteString(s[i : i+n])
		} else {
			b.WriteString(visible(r, n, s[i]))
		}
		i += n
	}
	return b.String()
}

func clean(s string, lines bool) bool {
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c < 0x20 && !(lines && (c == '\n' || c == '\t')) || c == 0x7f {
				return false
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if !safe(r, n) {
			return false
		}
		i += n
	}
	return true
}

// safe reports whether a decoded rune is shown by a terminal as itself.
func safe(r rune, n int) bool {
	if r == utf8.RuneError && n <= 1 {
		return false
	}
	switch {
	case r < 0x20 || r >= 0x7f && r < 0xa0:
		return false
	case r < 0x7f:
		return true
	case r == '\u2028' || r == '\u2029', // separators that some viewers take for a newline
		r >= '\u202a' && r <= '\u202e', r >= '\u2066' && r <= '\u2069', // bidirectional overrides
		r == '\u200e' || r == '\u200f' || r == '\u061c',
		r >= 0xe0000 && r <= 0xe007f: // invisible tags
		return false
	}
	return !unicode.Is(unicode.Cc, r)
}

func visible(r rune, n int, first byte) string {
	switch {
	case r == utf8.RuneError && n <= 1:
		return fmt.Sprintf(`\x%02x`, first)
	case r == '\n':
		return `\n`
	case r == '\t':
		return `\t`
	case r == '\r':
		return `\r`
	case r < 0x80:
		return fmt.Sprintf(`\x%02x`, r)
	case r <= 0xffff:
		return fmt.Sprintf(`\u%04x`, r)
	}
	return fmt.Sprintf(`\U%08x`, r)
}
