// Package codec keeps the compressions that package tree knows.
package codec

import (
	"io"
	"sync"
)

// Codec is one compression. Encoders work on the caller's goroutine and at their fastest: what is better compressed
// takes longer than it takes to send.
type Codec struct {
	Name   string
	Magic  string // the first bytes of every stream, at most 4
	Writer func(io.Writer) (io.WriteCloser, error)
	Reader func(io.Reader) (io.ReadCloser, error)
}

var (
	mu    sync.RWMutex
	known []Codec
)

// Register adds a codec; it is called by the init functions of the packages that have one.
func Register(c Codec) {
	mu.Lock()
	defer mu.Unlock()
	known = append(known, c)
}

// Find returns the first codec that fits.
func Find(fits func(Codec) bool) (Codec, bool) {
	mu.RLock()
	defer mu.RUnlock()
	for _, c := range known {
		if fits(c) {
			return c, true
		}
	}
	return Codec{}, false
}
