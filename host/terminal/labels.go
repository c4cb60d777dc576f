package terminal

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
)

// maxLine bounds how much of a line is held back before it is written in pieces, each with its label, in bytes.
const maxLine = 64 << 10

// Labels writes the output of several runs to shared writers, line by line, each line with the name of its run in
// front. A line is never interleaved with another one. It is safe for concurrent use.
type Labels struct {
	color bool
	width int            // of the longest name
	index map[string]int // of each name, for its colour
	mu    sync.Mutex
}

// NewLabels makes labels for runs of these names.
func NewLabels(names []string, color bool) *Labels {
	l := &Labels{color: color, index: map[string]int{}}
	for i, n := range names {
		l.width = max(l.width, len(n))
		l.index[n] = i
	}
	return l
}

// colors are those that are readable on dark and on light backgrounds.
var colors = []int{36, 33, 32, 35, 34}

// Writer gives one stream of the run called name; what is written to it goes to w. Close writes a last line that has
// no end. The writer is for one goroutine; several of them may share w.
func (l *Labels) Writer(name string, w io.Writer) io.WriteCloser {
	label := fmt.Sprintf("%-*s | ", l.width, name)
	if l.color {
		label = fmt.Sprintf("\x1b[%dm%-*s |\x1b[0m ", colors[l.index[name]%len(colors)], l.width, name)
	}
	return &labelWriter{labels: l, label: label, to: w}
}

// Plain gives a writer without a label whose writes do not fall into anybody's line either.
func (l *Labels) Plain(w io.Writer) io.Writer { return &plainWriter{l, w} }

type plainWriter struct {
	labels *Labels
	to     io.Writer
}

func (p *plainWriter) Write(b []byte) (int, error) {
	p.labels.mu.Lock()
	defer p.labels.mu.Unlock()
	return p.to.Write(b)
}

type labelWriter struct {
	labels *Labels
	label  string
	to     io.Writer
	line   []byte // begun, not ended
}

func (w *labelWriter) Write(p []byte) (int, error) {
	n := len(p)
	var out strings.Builder
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			w.line = append(w.line, p...)
			if len(w.line) >= maxLine {
				w.end(&out)
			}
			break
		}
		w.line = append(w.line, p[:i]...)
		w.end(&out)
		p = p[i+1:]
	}
	return n, w.flush(out.String())
}

func (w *labelWriter) end(out *strings.Builder) {
	out.WriteString(w.label)
	out.Write(w.line)
	out.WriteByte('\n')
	w.line = w.line[:0]
}

func (w *labelWriter) flush(s string) error {
	if s == "" {
		return nil
	}
	w.labels.mu.Lock()
	defer w.labels.mu.Unlock()
	_, err := io.WriteString(w.to, s)
	return err
}

func (w *labelWriter) Close() error {
	if len(w.line) == 0 {
		return nil
	}
	var out strings.Builder
	w.end(&out)
	return w.flush(out.String())
}
