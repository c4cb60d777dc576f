package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/safefile"
	"github.com/hutch-run/hutch/sdk/tree"
)

// The bounds of what a machine may send.
const (
	maxFetched  = tree.DefaultMaxBytes
	maxPathSize = 4096
	maxDepth    = 256
)

// taker checks the entries of an archive that a machine sends, and passes on what is left of them: name, type,
// permissions, time, target and content. What tree.Pack would not write is refused, or reported as left out.
type taker struct {
	ctx   context.Context
	out   *tar.Writer
	seen  map[string]byte // path -> type
	bytes int64
	buf   []byte
}

func newTaker(ctx context.Context, w io.Writer) *taker {
	return &taker{ctx: ctx, out: tar.NewWriter(w), seen: map[string]byte{}, buf: make([]byte, 256<<10)}
}

// relay passes an archive on.
func relay(ctx context.Context, r io.Reader, w io.Writer) error {
	t := newTaker(ctx, w)
	in := newIncoming(r)
	for {
		h, err := in.next()
		if errors.Is(err, io.EOF) {
			return t.out.Close()
		}
		if err != nil {
			return err
		}
		if err := t.entry(h, in); err != nil {
			return err
		}
	}
}

// incoming is an archive that a machine sends.
type incoming struct{ *tar.Reader }

// newIncoming bounds what is read of r. An archive holds more than its files: headers, and what a lie about them would
// make of it.
func newIncoming(r io.Reader) incoming {
	return incoming{tar.NewReader(&bounded{r: r, left: maxFetched + maxEntries*4096})}
}

// next returns the next header; [io.EOF] is the archive's end.
func (a incoming) next() (*tar.Header, error) {
	h, err := a.Next()
	switch {
	case err == nil, errors.Is(err, tar.ErrInsecurePath): // which entry says better
		return h, nil
	case errors.Is(err, io.EOF):
		return nil, io.EOF
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, io.ErrUnexpectedEOF
	}
	return nil, sdk.Errorf(sdk.ReasonUnavailable, "the archive that the machine sends is broken: %w", err)
}

// hostile is an entry that no honest archive has.
func hostile(format string, args ...any) error {
	return sdk.Errorf(sdk.ReasonDenied, "the archive that the machine sends is refused: "+format, args...)
}

// entry passes on one entry, whose content, if it has one, comes from r.
func (t *taker) entry(h *tar.Header, r io.Reader) error {
	if cause := context.Cause(t.ctx); cause != nil {
		return cause
	}
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name := nameOf(h)
	if name == "" && (h.Name == "." || h.Name == "./") {
		return nil
	}
	if err := t.check(name, h.Typeflag); err != nil {
		return err
	}
	out := &tar.Header{Name: name, Mode: h.Mode & 0o777, ModTime: h.ModTime, Format: tar.FormatPAX}
	switch h.Typeflag {
	case tar.TypeDir:
		out.Typeflag, out.Name = tar.TypeDir, name+"/"
	case tar.TypeSymlink:
		if h.Linkname == "" || len(h.Linkname) > maxPathSize || strings.IndexByte(h.Linkname, 0) >= 0 {
			return hostile("the symbolic link %.200q has no usable target", name)
		}
		out.Typeflag, out.Linkname, out.Mode = tar.TypeSymlink, h.Linkname, 0o777
	case tar.TypeReg, tar.TypeGNUSparse:
		if h.Size > maxFetched-t.bytes {
			return t.leaveOut(out, safefile.ReasonTooBig, fmt.Sprintf("%d bytes, and at most %d are taken of the whole tree",
				h.Size, int64(maxFetched)))
		}
		out.Typeflag, out.Size = tar.TypeReg, h.Size
		t.bytes += h.Size
		if err := t.out.WriteHeader(out); err != nil {
			return err
		}
		_, err := io.CopyBuffer(onlyWriter{t.out}, onlyReader{r}, t.buf)
		return err
	case tar.TypeLink:
		return hostile("%.200q is a hard link, and none was asked for", name)
	default:
		return t.leaveOut(out, safefile.ReasonSpecial, "neither a file nor a directory")
	}
	return t.out.WriteHeader(out)
}

// nameOf is an entry's path below the directory that was packed, "" for that itself.
func nameOf(h *tar.Header) string {
	name := h.Name
	if h.Typeflag == tar.TypeDir {
		name = strings.TrimSuffix(name, "/")
	}
	if name == "." {
		return ""
	}
	return strings.TrimPrefix(name, "./")
}

// onlyWriter hides what else a writer can, so that the buffer is used.
type onlyWriter struct{ io.Writer }

// check refuses a name that leads out, stands there twice, or needs something else than a directory to be one.
func (t *taker) check(name string, typ byte) error {
	switch {
	case name == "" || path.IsAbs(name) || path.Clean(name) != name || name == ".." || strings.HasPrefix(name, "../"):
		return hostile("the name %.200q leads out of the tree", name)
	case len(name) > maxPathSize || strings.Count(name, "/") >= maxDepth:
		return hostile("the name %.100q… is too long or too deep", name)
	case strings.IndexByte(name, 0) >= 0:
		return hostile("the name %.200q holds a NUL", name)
	case len(t.seen) >= maxEntries:
		return sdk.Errorf(sdk.ReasonConfig, "the tree has more than %d entries", maxEntries)
	}
	if _, twice := t.seen[name]; twice {
		return hostile("%.200q stands there twice", name)
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if was, ok := t.seen[dir]; ok && was != tar.TypeDir {
			return hostile("%.200q lies below %.200q, which is no directory", name, dir)
		} else if ok {
			break // whose own parents were looked at
		}
	}
	t.seen[name] = typ
	return nil
}

// leaveOut reports an entry without its content.
func (t *taker) leaveOut(h *tar.Header, reason safefile.Reason, detail string) error {
	return t.out.WriteHeader(tree.LeaveOut(h, reason, detail))
}

// bounded ends a stream with an error when it is longer than it may be.
type bounded struct {
	r    io.Reader
	left int64
}

// Read implements [io.Reader].
func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, sdk.Errorf(sdk.ReasonConfig, "the archive that the machine sends has more than %d bytes", int64(maxFetched))
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
