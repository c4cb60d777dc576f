package files

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/hutch-run/hutch/host/termsafe"
)

// ReadRequest says what to read.
type ReadRequest struct {
	Path   string `json:"path" jsonschema:"path relative to the workspace, or absolute as commands see it"`
	Offset int    `json:"offset,omitempty" jsonschema:"first line, counted from 1"`
	Limit  int    `json:"limit,omitempty" jsonschema:"lines; default all that fit into the answer"`
	// Max bounds the answer, in bytes and whole lines where it can; 0 means all.
	Max int `json:"max_bytes,omitempty" jsonschema:"bytes in the answer; default 65536, at most 524288"`
}

// Content is what was read of a file.
type Content struct {
	Path  string `json:"path"`
	Layer string `json:"layer,omitempty"` // as in Entry
	Size  int64  `json:"size" jsonschema:"bytes of the whole file"`
	// Lines counts a last line without a newline too.
	Lines  int    `json:"lines" jsonschema:"lines of the whole file"`
	First  int    `json:"first" jsonschema:"number of the first line of the text; 0 without one"`
	Next   int    `json:"next,omitempty" jsonschema:"line to read on at; missing at the end"`
	Binary bool   `json:"binary,omitempty" jsonschema:"it holds a zero byte or is not UTF-8"`
	Data   []byte `json:"-"`
	Text   string `json:"text"`                                                         // Data, unless Binary
	Base64 string `json:"base64,omitempty" jsonschema:"instead of the text, if binary"` // Data, if Binary
}

// Read reads a file, or lines of it. Symbolic links are followed inside the workspace.
func (f *Files) Read(ctx context.Context, r ReadRequest) (*Content, error) {
	if r.Offset < 0 || r.Limit < 0 || r.Max < 0 {
		return nil, refuse(r.Path, ReasonRequest, "offset, limit and max cannot be negative")
	}
	s, err := f.find(r.Path)
	if err != nil {
		return nil, err
	}
	b, c, err := f.content(ctx, s)
	if err != nil {
		return nil, err
	}
	c.cut(b, max(r.Offset, 1), r.Limit, r.Max)
	c.Binary = bytes.IndexByte(c.Data, 0) >= 0 || !utf8.Valid(c.Data)
	if c.Binary {
		c.Base64 = base64.StdEncoding.EncodeToString(c.Data)
	} else {
		c.Text = string(c.Data)
	}
	return c, nil
}

// content reads a whole file.
func (f *Files) content(ctx context.Context, s spot) ([]byte, *Content, error) {
	r, n, err := s.view.open(ctx, s.rel, f.o.MaxSize)
	if err != nil {
		return nil, nil, f.insideHint(s, explain(s.name, err))
	}
	defer r.Close()
	// The file may grow meanwhile; the answer is what it was when it was opened.
	b := make([]byte, n.Size)
	got, err := io.ReadFull(r, b)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return nil, nil, explain(s.name, err)
	}
	return b[:got], &Content{Path: s.name, Layer: string(n.Layer), Size: int64(got)}, nil
}

// insideHint names the command that reads a file which is not opened from outside.
func (f *Files) insideHint(s spot, err error) error {
	var e *Error
	if errors.As(err, &e) && e.Reason == ReasonLinked {
		e.Hint = fmt.Sprintf("one of its links may be somebody else's file, so that it is not opened from outside; hutch "+
			"exec %s -- cat %s reads it, and a copy made in the sandbox has one link",
			f.name(), termsafe.Line(s.abs()))
	}
	return err
}

// name is what hints call the sandbox.
func (f *Files) name() string {
	if f.o.Name == "" {
		return "SANDBOX"
	}
	return f.o.Name
}

// cut keeps the lines that were asked for.
func (c *Content) cut(b []byte, first, limit, most int) {
	c.Lines = countLines(b)
	if first > c.Lines {
		return
	}
	start := lineStart(b, first-1)
	end := len(b)
	if limit > 0 && limit < c.Lines-first+1 {
		end = start + lineStart(b[start:], limit)
	}
	c.First = first
	if most > 0 && end-start > most {
		end = start + most
		if i := bytes.LastIndexByte(b[start:end], '\n'); i >= 0 {
			end = start + i + 1
		} else {
			for end > start && end-start > most-utf8.UTFMax && !utf8.RuneStart(b[end]) {
				end--
			}
		}
	}
	c.Data = b[start:end]
	if end < len(b) {
		// A line that had to be cut is to be asked for again with a larger Max, so the next one is the one after it.
		c.Next = first + countLines(c.Data)
	}
}

// lineStart is where line n of b begins, counted from 0; b must have more lines than that.
func lineStart(b []byte, n int) int {
	at := 0
	for range n {
		i := bytes.IndexByte(b[at:], '\n')
		if i < 0 {
			return len(b)
		}
		at += i + 1
	}
	return at
}

// countLines counts lines; a last one without a newline is one.
func countLines(b []byte) int {
	n := bytes.Count(b, []byte{'\n'})
	if len(b) > 0 && b[len(b)-1] != '\n' {
		n++
	}
	return n
}

// Numbered returns the data with the number of its line before each line, as `cat -n` does.
func (c *Content) Numbered() []byte {
	var out bytes.Buffer
	n := c.First
	for line := range bytes.Lines(c.Data) {
		fmt.Fprintf(&out, "%6d\t%s", n, line)
		n++
	}
	if out.Len() > 0 && out.Bytes()[out.Len()-1] != '\n' {
		out.WriteByte('\n')
	}
	return out.Bytes()
}
