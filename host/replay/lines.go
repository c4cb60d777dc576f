package replay

import (
	"bufio"
	"errors"
	"io"
	"strings"

	"github.com/hutch-run/hutch/host/store"
)

// logText reads a log from its beginning.
type logText struct {
	io.Reader
	total, dropped int64
	close          func()
}

// newLogText takes over a log; nil is an empty one.
func newLogText(l *store.LogReader) (*logText, error) {
	if l == nil {
		return &logText{Reader: strings.NewReader(""), close: func() {}}, nil
	}
	t := &logText{}
	var err error
	if t.total, t.dropped, err = l.Counts(); err != nil {
		l.Close()
		return nil, err
	}
	r, w := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err := l.WriteTo(w)
		w.CloseWithError(err)
	}()
	t.Reader = r
	t.close = func() {
		r.CloseWithError(io.ErrClosedPipe)
		<-done
		l.Close()
	}
	return t, nil
}

// Close ends the reading.
func (t *logText) Close() { t.close() }

// maxShown bounds a line that is shown of a stream, in bytes.
const maxShown = 500

// firstDifference finds the first line in which two texts differ, from 1, in bounded memory; 0 when they are the same.
// A line that is not there at all is "(end)".
func firstDifference(a, b io.Reader) (line int, was, is string, err error) {
	x, y := bufio.NewReaderSize(a, 64<<10), bufio.NewReaderSize(b, 64<<10)
	line = 1
	for {
		p, perr := x.ReadSlice('\n')
		q, qerr := y.ReadSlice('\n')
		for _, err := range []error{perr, qerr} {
			if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
				return 0, "", "", err
			}
		}
		if string(p) != string(q) {
			return line, shown(p), shown(q), nil
		}
		switch {
		case errors.Is(perr, io.EOF):
			return 0, "", "", nil
		case perr == nil:
			line++
		}
	}
}

func shown(line []byte) string {
	if len(line) == 0 {
		return "(end)"
	}
	text, ended := strings.CutSuffix(string(line), "\n")
	if len(text) > maxShown {
		return strings.ToValidUTF8(text[:maxShown], "\ufffd") + "…"
	}
	text = strings.ToValidUTF8(text, "\ufffd")
	if !ended {
		text += " (no newline)"
	}
	return text
}
