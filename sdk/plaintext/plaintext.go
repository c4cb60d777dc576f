// Package plaintext judges which text shows on a terminal, and in a file that people read, as what it is. It is the one
// judge of the module: names, sources, messages of services and the output of programs are all held against it. It
// imports nothing of the module.
package plaintext

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Rune reports whether a character shows as itself on one line. The control characters (C0, DEL, C1) do not, nor do the
// separators of lines and paragraphs, the marks and overrides that reorder a line, with which "exe.txt" can be made to
// look like "txt.exe", and invisible tags. Joiners and variation selectors do: text in many scripts needs them.
func Rune(r rune) bool {
	switch {
	case r < 0x7f:
		return r >= 0x20
	case unicode.IsControl(r), r == 0x061c, r == 0x200e, r == 0x200f, r >= 0x2028 && r <= 0x202e, r >= 0x2066 &&
		r <= 0x2069,
		r == 0xfeff, r >= 0xe0000 && r <= 0xe007f:
		return false
	}
	return true
}

// IsLine reports whether s is valid UTF-8 and all of it shows as itself on one line.
func IsLine(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !Rune(r) })
}

// Line makes a foreign text fit for a message: valid UTF-8 on one line, at most that many bytes long, with a space for
// each character that does not show as itself.
func Line(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if !Rune(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}
