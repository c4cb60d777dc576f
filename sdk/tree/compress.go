package tree

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/gzip"

	"github.com/hutch-run/hutch/sdk/tree/internal/codec"
)

func init() {
	codec.Register(codec.Codec{
		Name: string(Gzip), Magic: "\x1f\x8b",
		Writer: func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriterLevel(w, gzip.BestSpeed) },
		Reader: func(r io.Reader) (io.ReadCloser, error) { return gzip.NewReader(r) },
	})
}

// compress wraps w; finish writes what is still held back.
func compress(w io.Writer, c Compression) (_ io.Writer, finish func() error, err error) {
	if c == None {
		return w, func() error { return nil }, nil
	}
	x, ok := codec.Find(func(x codec.Codec) bool { return x.Name == string(c) })
	if !ok {
		return nil, nil, fmt.Errorf("no compression %q%s", strings.ToValidUTF8(string(c), "?"), missing(c))
	}
	z, err := x.Writer(w)
	if err != nil {
		return nil, nil, err
	}
	return z, z.Close, nil
}

// decompress looks at the first bytes of a stream to tell how it is compressed.
func decompress(r io.Reader) (plain io.Reader, done func(), err error) {
	b := bufio.NewReaderSize(r, 256<<10)
	magic, err := b.Peek(4)
	if err != nil && err != io.EOF {
		return nil, nil, err
	}
	x, ok := codec.Find(func(x codec.Codec) bool { return strings.HasPrefix(string(magic), x.Magic) })
	switch {
	case !ok && string(magic) == zstdMagic:
		return nil, nil, fmt.Errorf("the stream is compressed with zstd%s", missing(Zstd))
	case !ok:
		return b, func() {}, nil
	}
	z, err := x.Reader(b)
	if err != nil {
		return nil, nil, fmt.Errorf("the %s stream is broken: %w", x.Name, err)
	}
	return z, func() { z.Close() }, nil
}

const zstdMagic = "\x28\xb5\x2f\xfd"

// missing says how a program comes to know a compression that it does not link.
func missing(c Compression) string {
	if c != Zstd {
		return ""
	}
	return ", which this program does not know: it must import .../sdk/tree/zstd"
}
