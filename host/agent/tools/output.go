package tools

import (
	"strings"
	"sync"
	"unicode/utf8"
)

const (
	keptOutput    = 1 << 20  // bytes of each stream of a job that are kept to be read: the last ones
	defaultOutput = 16 << 10 // bytes of each stream in one answer
	maxOutput     = 256 << 10
)

// tail keeps the last bytes of a stream, and counts all of them.
type tail struct {
	mu    sync.Mutex
	kept  []byte
	total int64
}

// Write implements io.Writer; it never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total += int64(len(p))
	t.kept = append(t.kept, p...)
	if len(t.kept) > 2*keptOutput {
		t.kept = append([]byte(nil), t.kept[len(t.kept)-keptOutput:]...)
	}
	return len(p), nil
}

// StreamOut is a piece of a stream.
type StreamOut struct {
	Text    string `json:"text" jsonschema:"what is not UTF-8 shows as U+FFFD"`
	Offset  int64  `json:"offset" jsonschema:"where in the stream the text begins, in bytes"`
	Next    int64  `json:"next" jsonschema:"offset to go on reading at"`
	Total   int64  `json:"total" jsonschema:"bytes of the stream so far"`
	Skipped int64  `json:"skipped,omitempty" jsonschema:"bytes before the text that are no longer kept; all of them may be in the record of the run"`
}

// read returns the bytes from an offset on. A negative offset asks for the end.
func (t *tail) read(offset int64, max int) StreamOut {
	t.mu.Lock()
	defer t.mu.Unlock()
	first := t.total - int64(len(t.kept))
	if len(t.kept) > keptOutput {
		first = t.total - keptOutput
	}
	if offset < 0 || offset > t.total {
		offset = t.total - int64(max)
		if offset < first {
			offset = first
		}
	}
	out := StreamOut{Total: t.total}
	if offset < first {
		out.Skipped, offset = first-offset, first
	}
	b := t.kept[int64(len(t.kept))-(t.total-offset):]
	if len(b) > max {
		b = b[:max]
		for cut := 1; cut < utf8.UTFMax && cut < len(b); cut++ { // not inside of a character
			if utf8.RuneStart(b[len(b)-cut]) {
				if !utf8.FullRune(b[len(b)-cut:]) {
					b = b[:len(b)-cut]
				}
				break
			}
		}
	}
	out.Offset, out.Next = offset, offset+int64(len(b))
	out.Text = strings.ToValidUTF8(string(b), "\uFFFD")
	return out
}
