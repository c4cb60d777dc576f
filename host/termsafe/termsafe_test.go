package termsafe

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestString(t *testing.T) {
	for in, want := range map[string]string{
		"plain":                      "plain",
		"a\tb\n":                     "a\tb\n",
		"\x1b]0;x\a":                 `\x1b]0;x\x07`,
		"\x1b[2J":                    `\x1b[2J`,
		"\x1b[31mred":                `\x1b[31mred`,
		"gr\u00fc\u00dfe \U0001f600": "gr\u00fc\u00dfe \U0001f600",
		"evil\u202eexe.txt":          `evil\u202eexe.txt`,
		"\u009b2J":                   `\u009b2J`,
		"\x9b2J":                     `\x9b2J`,
		"a\rb":                       `a\rb`,
		"\x7f\x00":                   `\x7f\x00`,
	} {
		if got := String(in); got != want {
			t.Errorf("String(%q) = %q, want %q", in, got, want)
		}
	}
	if got := Line("a\nb\tc"); got != `a\nb\tc` {
		t.Errorf("Line = %q", got)
	}
}

func TestWriterAnySplit(t *testing.T) {
	const in = "ok \x1b[1;31mred\x1b[0m \x1b]52;c;AAAA\x07 \x1b[2J caf\u00e9 \U0001f600 \x9b \u202e 10%\r20%\n\x1b[32mgreen"
	const want = "ok \x1b[1;31mred\x1b[0m \\x1b]52;c;AAAA\\x07 \\x1b[2J caf\u00e9 \U0001f600 \\x9b \\u202e 10%\r20%\n\x1b[32mgreen\x1b[0m"
	for size := 1; size <= len(in); size++ {
		var b bytes.Buffer
		w := NewWriter(&b)
		for i := 0; i < len(in); i += size {
			if _, err := w.Write([]byte(in[i:min(i+size, len(in))])); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if b.String() != want {
			t.Fatalf("in pieces of %d:\n got %q\nwant %q", size, b.String(), want)
		}
	}
}

func TestWriterUnfinished(t *testing.T) {
	for in, want := range map[string]string{
		"a\x1b":                                  `a\x1b`,
		"a\x1b[":                                 `a\x1b[`,
		"a\x1b[31":                               `a\x1b[31`,
		"a\xf0\x9f":                              `a\xf0\x9f`,
		"\x1b[" + strings.Repeat("1;", 60) + "m": `\x1b[` + strings.Repeat("1;", 60) + "m",
	} {
		var b bytes.Buffer
		w := NewWriter(&b)
		if _, err := w.Write([]byte(in)); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if b.String() != want {
			t.Errorf("%q: got %q, want %q", in, b.String(), want)
		}
	}
}

func FuzzWriter(f *testing.F) {
	f.Add([]byte("\x1b[31mred\x1b[0m"), 3)
	f.Add([]byte("\x1b]0;x\a\x1b[2J\u202e\x9b"), 1)
	f.Fuzz(func(t *testing.T, in []byte, size int) {
		size = max(1, size%64)
		var b bytes.Buffer
		w := NewWriter(&b)
		for i := 0; i < len(in); i += size {
			_, _ = w.Write(in[i:min(i+size, len(in))])
		}
		_ = w.Close()
		out := b.Bytes()
		if !utf8.Valid(out) {
			t.Fatalf("%q is not UTF-8", out)
		}
		for i := 0; i < len(out); i++ {
			c := out[i]
			if c == 0x1b {
				n, ok, _ := sgr(out[i:])
				if !ok {
					t.Fatalf("escape sequence other than a colour in %q", out[i:])
				}
				i += n - 1
				continue
			}
			if c < 0x20 && c != '\n' && c != '\t' && c != '\r' || c == 0x7f {
				t.Fatalf("control character %#x in %q", c, out)
			}
		}
	})
}
