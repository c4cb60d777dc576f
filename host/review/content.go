package review

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/hutch-run/hutch/sdk/safefile"
)

// content is what a change does to the content of a file, as far as it can be shown.
type content struct {
	// note says why lines are not shown: the file is binary, too large, or cannot be read. Binary is set for the first.
	note   string
	binary bool
	text   *textDiff // nil with a note, and where no content changes
}

// content reads both sides of a change and compares them. It may be called concurrently, each goroutine with its own
// directory.
func (r *Review) content(ctx context.Context, c *Change, project *dir) (content, error) {
	if !c.hasContent() && !(c.New.Type == Nothing && c.Old.Type == File) && c.Kind != Retyped || c.Kind == Renamed {
		return content{}, nil
	}
	var old, now []byte
	if c.Old.Type == File {
		if c.Old.Size > maxText {
			return content{note: fmt.Sprintf("too large to show: it had %d bytes", c.Old.Size)}, nil
		}
		f, id, err := project.open(c.Path)
		if err == nil && !id.same(c.id) {
			err = errors.New("it changed in the project while it was looked at")
		}
		if f != nil {
			defer f.Close()
		}
		if err == nil {
			old, err = io.ReadAll(io.LimitReader(f, maxText+1))
		}
		if err != nil {
			return content{note: "cannot be read in the project: " + err.Error()}, nil
		}
	}
	if c.New.Type == File {
		if c.New.Size > maxText {
			return content{note: fmt.Sprintf("too large to show: it has %d bytes", c.New.Size)}, nil
		}
		b, err := r.newBytes(ctx, c)
		var bad *safefile.Error
		if errors.As(err, &bad) {
			return content{note: "cannot be read in the sandbox: " + bad.Detail}, nil
		}
		if err != nil {
			return content{}, err
		}
		now = b
	}
	if isBinary(old) || isBinary(now) {
		return content{binary: true, note: "binary"}, nil
	}
	return content{text: diffText(old, now)}, nil
}

// newBytes reads the sandbox's version of a file of at most maxText bytes, from the stage when it is there.
func (r *Review) newBytes(ctx context.Context, c *Change) ([]byte, error) {
	if c.blob != nil {
		f, err := c.blob.open()
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return io.ReadAll(io.LimitReader(f, maxText))
	}
	var buf bytes.Buffer
	if _, err := r.source.copy(ctx, &buf, c.Path, maxText); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}
