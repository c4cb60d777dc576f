package termsafe

import (
	"io"
	"unicode/utf8"
)

// maxSGR bounds how long a colour sequence may be; a longer one is shown as text.
const maxSGR = 48

// A Writer passes a stream on to a terminal with everything harmful made visible. Sequences and characters that
// are cut by the end of a Write are held back until the rest arrives, at most [maxSGR] bytes. Not safe for
// concurrent use. Call Close at the end of the stream.
type Writer struct {
	w       io.Writer
	pending []byte // an unfinished character or sequence
	out     []byte
	colour  bool // a colour was passed on and not reset
}

// NewWriter returns a Writer onto w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write implements [io.Writer]. It reports all of p as written unless the write below fails.
func (t *Writer) Write(p []byte) (int, error) {
	in := p
	if len(t.pending) > 0 {
		in = append(t.pending, p...)
		t.pending = nil
	}
	t.out = t.out[:0]
	rest := t.scan(in, false)
	if len(rest) > 0 {
		t.pending = append([]byte(nil), rest...)
	}
	if len(t.out) > 0 {
		if _, err := t.w.Write(t.out); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// Close shows what was held back and resets the colours if the stream left any on. It does not close the writer
// below.
func (t *Writer) Close() error {
	t.out = t.out[:0]
	t.scan(t.pending, true)
	t.pending = nil
	if t.colour {
		t.out = append(t.out, "\x1b[0m"...)
		t.colour = false
	}
	if len(t.out) == 0 {
		return nil
	}
	_, err := t.w.Write(t.out)
	return err
}

// scan appends the harmless form of in to t.out and returns the unfinished rest, which is empty when last.
func (t *Writer) scan(in []byte, last bool) []byte {
	for i := 0; i < len(in); {
		c := in[i]
		switch {
		case c >= 0x20 && c < 0x7f || c == '\n' || c == '\t' || c == '\r':
			t.out = append(t.out, c)
			i++
		case c == 0x1b:
			n, ok, more := sgr(in[i:])
			if more && !last {
				return in[i:]
			}
			if ok {
				t.out = append(t.out, in[i:i+n]...)
				t.colour = !isReset(in[i : i+n])
				i += n
				continue
			}
			t.out = append(t.out, `\x1b`...)
			i++
		default:
			if c >= utf8.RuneSelf && !last && !utf8.FullRune(in[i:]) {
				return in[i:]
			}
			r, n := utf8.DecodeRune(in[i:])
			if safe(r, n) {
				t.out = append(t.out, in[i:i+n]...)
			} else {
				t.out = append(t.out, visible(r, n, c)...)
			}
			i += n
		}
	}
	return nil
}

// sgr recognises ESC [ digits ; : m at the start of b. more says that b is too short to decide.
func sgr(b []byte) (n int, ok, more bool) {
	if len(b) < 2 {
		return 0, false, true
	}
	if b[1] != '[' {
		return 0, false, false
	}
	for i := 2; i < len(b) && i < maxSGR; i++ {
		switch c := b[i]; {
		case c == 'm':
			return i + 1, true, false
		case c >= '0' && c <= '9' || c == ';' || c == ':':
		default:
			return 0, false, false
		}
	}
	return 0, false, len(b) < maxSGR
}

func isReset(seq []byte) bool {
	s := string(seq)
	return s == "\x1b[m" || s == "\x1b[0m"
}
