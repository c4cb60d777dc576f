// Package channel is what hutch and hutch-agent say to each other over the latter's standard input and output: one JSON object
// in each line.
//
//	→ {"version":1,"config":{…}}              once, first
//	← {"ready":true}                          or {"error":{…}}, and the end
//	→ {"id":1,"request":{…}}                  one at a time
//	← {"id":1,"delta":"…"}                    any number
//	← {"id":1,"answer":{…}} or {"id":1,"error":{…}}
//	→ {"id":1,"cancel":true}                  is answered by whichever of the two comes first
//
// The end of its input ends hutch-agent.
package channel

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"unicode/utf8"
)

// Version is of the channel. Both programs are of one build; a difference is an installation that is half done.
const Version = 1

// MaxLine is the length in bytes of the longest line that is read.
const MaxLine = 256 << 20

// Line is one line, in either direction.
type Line struct {
	Version int             `json:"version,omitempty"`
	Config  json.RawMessage `json:"config,omitempty"`
	Ready   bool            `json:"ready,omitempty"`
	ID      int64           `json:"id,omitempty"`
	Request json.RawMessage `json:"request,omitempty"`
	Cancel  bool            `json:"cancel,omitempty"`
	Delta   string          `json:"delta,omitempty"`
	Answer  json.RawMessage `json:"answer,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"` // a model.Error
}

// Reader reads lines. It is not safe for concurrent use.
type Reader struct {
	r   *bufio.Reader
	max int
}

// NewReader reads lines of at most MaxLine bytes.
func NewReader(r io.Reader) *Reader { return &Reader{r: bufio.NewReaderSize(r, 64<<10), max: MaxLine} }

// Next reads one line. It is [io.EOF] at the end, also when a line is cut off there: who wrote it is gone.
func (r *Reader) Next() (Line, error) {
	var l Line
	b, err := r.line()
	if err != nil {
		return l, err
	}
	if !utf8.Valid(b) {
		return l, errors.New("a line of the channel is not UTF-8")
	}
	if err := json.Unmarshal(b, &l); err != nil {
		return Line{}, fmt.Errorf("a line of the channel makes no sense: %w", err)
	}
	return l, nil
}

func (r *Reader) line() ([]byte, error) {
	var whole []byte
	for {
		part, err := r.r.ReadSlice('\n')
		switch {
		case len(whole)+len(part) > r.max:
			return nil, fmt.Errorf("a line of the channel is longer than %d bytes", r.max)
		case err == nil && whole == nil:
			return bytes.TrimSuffix(part, []byte("\n")), nil
		}
		whole = append(whole, part...)
		switch {
		case err == nil:
			return bytes.TrimSuffix(whole, []byte("\n")), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// Writer writes lines. It is safe for concurrent use.
type Writer struct {
	mu sync.Mutex
	w  io.Writer
}

// NewWriter writes lines to w, each with one call.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write writes one line.
func (w *Writer) Write(l Line) error {
	b, err := json.Marshal(l)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err = w.w.Write(append(b, '\n'))
	return err
}
