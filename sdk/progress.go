package sdk

import (
	"bytes"
	"context"
	"io"
	"strconv"

	"github.com/hutch-run/hutch/sdk/contract"
)

// FetchingFile is the step that a Get of [FormatFile] begins with.
const FetchingFile = contract.FetchingFile

// Progress returns the function that shows the user how far the call of ctx is, as [CreateRequest.Progress] does; it is
// never nil. It is heard of a [Getter]'s Get.
func Progress(ctx context.Context) func(step string, done, total int64) {
	return contract.Progress(ctx)
}

// WithProgress returns a context for calls that report progress to tell, which may be called concurrently with them.
func WithProgress(ctx context.Context, tell func(step string, done, total int64)) context.Context {
	return contract.WithProgress(ctx, tell)
}

// SizeLine returns a writer for a stream that begins with a line of the size of a file, in bytes, as a program in a
// machine far away writes it: the size becomes the progress of a Get of [FormatFile], and w gets the rest.
func SizeLine(ctx context.Context, w io.Writer) io.Writer {
	return &sizeLine{ctx: ctx, w: w}
}

type sizeLine struct {
	ctx  context.Context
	w    io.Writer
	line []byte
	over bool
}

// Write implements [io.Writer].
func (s *sizeLine) Write(p []byte) (int, error) {
	if s.over {
		return s.w.Write(p)
	}
	line, rest, over := bytes.Cut(p, []byte("\n"))
	s.line = append(s.line, line...)
	if len(s.line) > 20 {
		return 0, Errorf(ReasonUnavailable, "there is no size before the file, but %q", s.line[:20])
	}
	if !over {
		return len(p), nil
	}
	size, err := strconv.ParseInt(string(s.line), 10, 64)
	if err != nil || size < 0 {
		return 0, Errorf(ReasonUnavailable, "there is no size before the file, but %q", s.line)
	}
	s.over = true
	Progress(s.ctx)(FetchingFile, 0, size)
	n, err := s.w.Write(rest)
	return len(line) + 1 + n, err
}
