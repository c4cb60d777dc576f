package terminal

import (
	"errors"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Reader reads a file until it is stopped, so that the next reader of the file loses nothing to a Read that still
// waits.
type Reader struct {
	f          *os.File
	wake, stop *os.File // a pipe; closing stop ends a Read that waits
	mu         sync.Mutex
	once       sync.Once
}

// NewReader returns a Reader of f. Stop must be called.
func NewReader(f *os.File) (*Reader, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	return &Reader{f: f, wake: r, stop: w}, nil
}

// Read implements [io.Reader]. After Stop it returns io.EOF. It is for one goroutine at a time.
func (r *Reader) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		// select and not poll, which macOS does not have for terminals.
		in, wake := int(r.f.Fd()), int(r.wake.Fd())
		if wake < 0 {
			return 0, io.EOF
		}
		var ready unix.FdSet
		ready.Set(in)
		ready.Set(wake)
		switch _, err := unix.Select(max(in, wake)+1, &ready, nil, nil, nil); {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return 0, os.NewSyscallError("select", err)
		case ready.IsSet(wake):
			return 0, io.EOF
		}
		return r.f.Read(p)
	}
}

// Stop ends a Read that waits, and all that follow, and returns once none is under way. It may be called twice.
func (r *Reader) Stop() {
	r.once.Do(func() {
		r.stop.Close()
		r.mu.Lock()
		defer r.mu.Unlock()
		r.wake.Close()
	})
}
