// Package zstd teaches package tree the compression zstd:
//
//	import _ "github.com/hutch-run/hutch/sdk/tree/zstd"
//
// It is its own package because the library makes its tables at the start of every process that links it, which
// takes as long as a tenth of a small sandbox, and local backends compress nothing.
package zstd

import (
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/hutch-run/hutch/sdk/tree/internal/codec"
)

// maxWindow bounds the memory that a stream can make its reader take.
const maxWindow = 128 << 20

func init() {
	codec.Register(codec.Codec{
		Name: "zstd", Magic: "\x28\xb5\x2f\xfd",
		Writer: func(w io.Writer) (io.WriteCloser, error) {
			return zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
		},
		Reader: func(r io.Reader) (io.ReadCloser, error) {
			z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow),
				zstd.WithDecoderMaxMemory(maxWindow))
			if err != nil {
				return nil, err
			}
			return z.IOReadCloser(), nil
		},
	})
}
