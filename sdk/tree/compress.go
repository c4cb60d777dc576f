package tree

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// compress wraps w. The encoders work on the caller's goroutine and at their fastest: what is better compressed takes
// longer than it takes to send.
func compress(w io.Writer, c Compression) (io.Writer, func() error, error) {
	switch c {
	case None:
		return w, func() error { return nil }, nil
	case Gzip:
		z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	case Zstd:
		z, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	}
	return nil, nil, fmt.Errorf("no compression %q", strings.ToValidUTF8(string(c), "?"))
}

// maxWindow bounds the memory that a zstd stream can make its reader take.
const maxWindow = 128 << 20

// decompress looks at the first bytes of a stream to tell how it is compressed.
func decompress(r io.Reader) (io.Reader, func(), error) {
	b := bufio.NewReaderSize(r, 256<<10)
	magic, err := b.Peek(4)
	if err != nil && err != io.EOF {
		return nil, nil, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, nil, fmt.Errorf("the gzip stream is broken: %w", err)
		}
		return z, func() { z.Close() }, nil
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderMaxMemory(maxWindow))
		if err != nil {
			return nil, nil, fmt.Errorf("the zstd stream is broken: %w", err)
		}
		return z, z.Close, nil
	}
	return b, func() {}, nil
}
