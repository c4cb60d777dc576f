// Package tree carries directory trees as tar streams: Pack writes one, the same bytes for the same tree, and Unpack
// takes one apart that may come from a hostile sandbox.
package tree

import (
	"archive/tar"
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/gzip"
	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/safefile"
	"github.com/hutch-run/hutch/sdk/tree/internal/codec"
)

// Compression of a stream. Unpack recognises it by itself.
type Compression string

// The compressions. Local transfers use none, remote ones zstd; a program that packs or unpacks with the latter has to
// import package sdk/tree/zstd.
const (
	None Compression = ""
	Gzip Compression = "gzip"
	Zstd Compression = "zstd"
)

// PackOptions say what goes into the stream.
type PackOptions struct {
	Compression Compression
	Skip        func(path string, isDir bool) bool // nil skips nothing; a skipped directory is not entered
	MaxEntries  int                                // 0 means DefaultMaxEntries
	MaxBytes    int64                              // of file content, 0 means DefaultMaxBytes
	// Special writes what cannot be packed as entries without content instead of failing: FIFOs, sockets and devices,
	// files that are too big or cannot be opened, directories that cannot be entered. It is for a receiver that reports
	// what it leaves out, see [LeftOut]; Unpack refuses them.
	Special bool
	// Times writes the time of change of each entry, of which Unpack takes none over; without it the same tree gives the
	// same bytes.
	Times bool
}

// The PAX records that say why an entry has no content.
const (
	leftOutReason = "HUTCH.left_out"
	leftOutDetail = "HUTCH.left_out_detail"
)

// LeftOut says why [Pack] with Special left out the content of an entry; reason is "" when it did not. The stream may
// be hostile, and with it the words.
func LeftOut(h *tar.Header) (reason safefile.Reason, detail string) {
	return safefile.Reason(h.PAXRecords[leftOutReason]), h.PAXRecords[leftOutDetail]
}

// LeaveOut turns a header into that of an entry without content, of which [LeftOut] says why. A name that ends with a
// slash stays one of a directory.
func LeaveOut(h *tar.Header, reason safefile.Reason, detail string) *tar.Header {
	h.Typeflag, h.Size = tar.TypeFifo, 0
	if strings.HasSuffix(h.Name, "/") {
		h.Typeflag = tar.TypeDir
	}
	h.PAXRecords = map[string]string{leftOutReason: string(reason), leftOutDetail: detail}
	return h
}

// Caps bound what Unpack accepts. A zero means the default.
type Caps struct {
	Entries int   // DefaultMaxEntries
	Bytes   int64 // of file content, after decompression; DefaultMaxBytes
	File    int64 // of one file; Bytes
	Depth   int   // safepath.DefaultMaxDepth
}

// The defaults of PackOptions and Caps.
const (
	DefaultMaxEntries = 200_000
	DefaultMaxBytes   = 4 << 30
)

// Summary says what went through.
type Summary struct {
	Files, Dirs, Symlinks int
	Bytes                 int64
	LeftOut               int    // entries of which Pack with Special left out the content
	FirstLeftOut          string // the first one of them and why, for a person
}

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

// holeSize is how many zero bytes in a row, at a multiple of it, become a hole instead of being written: a file that is
// nothing but zeros, the cheapest of bombs, takes no room on disk.
const holeSize = 64 << 10

var zeros [holeSize]byte

// CopySparse writes what r holds to the empty file behind a descriptor, from its beginning on, and leaves long runs of
// zeros out as holes. It uses buf, and returns how many bytes r held.
func CopySparse(fd int, r io.Reader, buf []byte) (int64, error) {
	var at int64  // how much was read
	var hole bool // the file ends in a hole
	for {
		n, err := fill(r, buf)
		for part := buf[:n]; len(part) > 0; {
			p := part[:min(holeSize, len(part))]
			part = part[len(p):]
			if hole = len(p) == holeSize && string(p) == string(zeros[:]); !hole {
				if err := writeAt(fd, p, at); err != nil {
					return at, err
				}
			}
			at += int64(len(p))
		}
		if err == nil {
			continue
		}
		if err != io.EOF {
			return at, err
		}
		if hole {
			return at, unix.Ftruncate(fd, at)
		}
		return at, nil
	}
}

func writeAt(fd int, p []byte, at int64) error {
	for len(p) > 0 {
		n, err := unix.Pwrite(fd, p, at)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		p, at = p[n:], at+int64(n)
	}
	return nil
}

// fill reads until buf is full or r ends. Unlike io.ReadFull it leaves an end that was not expected, which is how a tar
// stream that was cut shows, apart from one that was.
func fill(r io.Reader, buf []byte) (n int, err error) {
	for n < len(buf) && err == nil {
		var m int
		m, err = r.Read(buf[n:])
		n += m
	}
	return n, err
}
