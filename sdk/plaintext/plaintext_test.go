package plaintext

import (
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestIsLine(t *testing.T) {
	for _, s := range []string{"", "plain text", "grüße 😀", "👩\u200d👧", "क\u094d\u200dष", "\u00a0", "\ufffd"} {
		if !IsLine(s) {
			t.Errorf("%q is refused", s)
		}
	}
	for _, s := range []string{"a\nb", "\t", "\x00", "\x1b[2J", "\x7f", "\u0080", "\u009b2J", "\u009f", "\x9b2J", "\u2028", "exe\u202etxt", "\u2066", "\u200f", "\u061c", "\ufeff", "\U000e0041"} {
		if IsLine(s) {
			t.Errorf("%q is taken", s)
		}
	}
}

func TestLine(t *testing.T) {
	if got := Line("a\n\u009b2J\xff grüße", 12); got != "a  2J? grü" {
		t.Errorf("%q", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		s, most := string(rapid.SliceOf(rapid.Byte()).Draw(t, "s")), rapid.IntRange(0, 20).Draw(t, "most")
		if got := Line(s, most); len(got) > most || !IsLine(got) || !utf8.ValidString(got) {
			t.Errorf("%q", got)
		}
		if IsLine(s) && len(s) <= most && Line(s, most) != s {
			t.Errorf("%q is changed", s)
		}
	})
}
