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
	"unicode/utf8"

	"github.com/hutch-run/hutch/sdk/plaintext"
)

// String returns s with everything that could act on a terminal shown as a visible escape; newlines and tabs stay.
func String(s string) string { return escape(s, true) }

// Line is [String] for text that has to stay on one line: newlines and tabs are shown as escapes too.
func Line(s string) string { return escape(s, false) }

// Clip shortens a text to at most so many bytes, not inside of a character, and marks that with …, which comes on
// top.
func Clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most] + "…"
}

func escape(s string, lines bool) string {
	if plaintext.IsLine(s) {
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

// safe reports whether a terminal shows a decoded rune as itself.
func safe(r rune, n int) bool { return plaintext.Rune(r) && (r != utf8.RuneError || n > 1) }

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
