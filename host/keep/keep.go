// Package keep has writers that keep a bounded part of what is written to them, such as the output of a program that
// nobody vouches for. It imports nothing of hutch.
package keep

import (
	"bytes"
	"fmt"
	"io"
	"sync"
)

// Head keeps the first Max bytes and drops the rest. Its zero value keeps nothing.
type Head struct {
	bytes.Buffer
	Max int
}

// Write implements [io.Writer]; it never fails.
func (h *Head) Write(p []byte) (int, error) {
	h.Buffer.Write(p[:min(len(p), max(0, h.Max-h.Len()))])
	return len(p), nil
}

// Tail keeps the last Max bytes. It is safe for concurrent use: both streams of a program may share one.
type Tail struct {
	Max  int
	Copy io.Writer // gets all that is written, unless nil; its errors are ignored

	mu      sync.Mutex
	b       []byte
	dropped bool
}

// Write implements [io.Writer]; it never fails.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.Copy != nil {
		_, _ = t.Copy.Write(p)
	}
	t.b = append(t.b, p...)
	if over := len(t.b) - t.Max; over > 0 {
		t.b, t.dropped = append(t.b[:0], t.b[over:]...), true
	}
	return len(p), nil
}

// Bytes is a copy of what is kept, and whether there was more before it.
func (t *Tail) Bytes() (b []byte, dropped bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return bytes.Clone(t.b), t.dropped
}

// Limit passes what is written on to W, up to Max bytes. A write beyond fails, as a whole, and sets Over.
type Limit struct {
	W    io.Writer
	Max  int64
	Over bool

	n int64
}

// Write implements [io.Writer].
func (l *Limit) Write(p []byte) (int, error) {
	if l.n += int64(len(p)); l.n > l.Max {
		l.Over = true
		return 0, fmt.Errorf("it has more than the %d bytes that are allowed", l.Max)
	}
	return l.W.Write(p)
}
