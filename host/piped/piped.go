// Package piped connects what writes a stream with what reads one.
package piped

import (
	"errors"
	"io"
)

// errEnough is the error of a writer whose reader has gone.
var errEnough = errors.New("enough was read")

// Join runs write and read at the same time, with what the one writes as what the other reads, and returns when both
// have. The reader sees the writer's end as io.EOF, and its error as an error. A reader may leave early: the writer's
// next write then fails, which is no error of its own. The error is the writer's, who knows why the stream broke off,
// else the reader's.
func Join(write func(io.Writer) error, read func(io.Reader) error) error {
	r, w := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := write(w)
		w.CloseWithError(err)
		written <- err
	}()
	err := read(r)
	r.CloseWithError(errEnough)
	if werr := <-written; werr != nil && !errors.Is(werr, errEnough) {
		return werr
	}
	return err
}
