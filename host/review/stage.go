package review

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/hutch-run/hutch/host/judge"
	"github.com/hutch-run/hutch/sdk/safefile"
)

// Bounds of what is taken from a sandbox.
const (
	maxFileBytes  = 2 << 30 // of one file
	maxStageBytes = 8 << 30 // of all files of a review
	inMemory      = 64 << 10
	maxMemory     = 64 << 20
)

// stage holds the contents of a sandbox's files as they were read, small ones in memory, the others on disk.
type stage struct {
	dir    string
	files  int
	bytes  int64
	memory int64
}

func newStage(parent string) (*stage, error) {
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(parent, stagePrefix+strconv.Itoa(os.Getpid())+"-")
	if err != nil {
		return nil, err
	}
	return &stage{dir: dir}, nil
}

// stagePrefix begins the name of a stage's directory; the process and a random number follow.
const stagePrefix = "stage-"

func (s *stage) close() { os.RemoveAll(s.dir) }

// blob is content that cannot change any more.
type blob struct {
	size   int64
	sha256 string
	data   []byte // when path is empty
	path   string
}

func (b *blob) open() (io.ReadCloser, error) {
	if b.path != "" {
		return os.Open(b.path)
	}
	return io.NopCloser(bytes.NewReader(b.data)), nil
}

// put takes in what copy writes. size is what is expected.
func (s *stage) put(size int64, copy func(io.Writer, int64) (safefile.Copied, error)) (*blob, error) {
	limit := min(maxFileBytes, maxStageBytes-s.bytes)
	if size > limit {
		return nil, &safefile.Error{Reason: safefile.ReasonTooBig,
			Detail: fmt.Sprintf("it has %d bytes; %d of one file and %d of all together can be", size, maxFileBytes, int64(maxStageBytes))}
	}
	b := &blob{}
	var got safefile.Copied
	if size <= inMemory && s.memory+size <= maxMemory {
		var buf bytes.Buffer
		var err error
		if got, err = copy(&buf, inMemory); err != nil {
			return nil, err
		}
		b.data = buf.Bytes()
		s.memory += int64(len(b.data))
	} else {
		s.files++
		b.path = filepath.Join(s.dir, strconv.Itoa(s.files))
		f, err := os.OpenFile(b.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return nil, err
		}
		got, err = copy(f, limit)
		if err := errors.Join(err, f.Close()); err != nil {
			os.Remove(b.path)
			return nil, err
		}
	}
	b.size, b.sha256 = got.Size, got.SHA256
	s.bytes += b.size
	return b, nil
}

// read takes the contents of all changed files into a stage.
func (r *Review) read(ctx context.Context, parent string) (err error) {
	if r.stage, err = newStage(parent); err != nil {
		return fmt.Errorf("stage the changes: %w", err)
	}
	for _, c := range r.Changes {
		if !c.hasContent() {
			continue
		}
		b, err := r.stage.put(c.New.Size, func(w io.Writer, max int64) (safefile.Copied, error) {
			return r.source.copy(ctx, w, c.Path, max)
		})
		var bad *safefile.Error
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.As(err, &bad):
			c.refuse(judge.Unreadable, "the sandbox's file cannot be taken: "+bad.Detail)
			continue
		case err != nil:
			return fmt.Errorf("stage %q: %w", c.Path, err)
		}
		c.blob = b
		c.New.Size, c.New.SHA256 = b.size, b.sha256
	}
	return nil
}
