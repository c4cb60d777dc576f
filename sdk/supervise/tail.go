package supervise

import (
	"strings"
	"sync"
)

// tailSize is how many bytes a Tail keeps.
const tailSize = 8 << 10

// Tail keeps the last words of a program, such as what it writes to its stderr. Its methods are safe for concurrent
// use.
type Tail struct {
	mu   sync.Mutex
	kept []byte
}

// Write implements [io.Writer]. The error is always nil.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.kept = append(t.kept, p...); len(t.kept) > tailSize {
		t.kept = append([]byte(nil), t.kept[len(t.kept)-tailSize:]...)
	}
	return len(p), nil
}

// String is what was written last, without blanks around it.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.kept))
}
