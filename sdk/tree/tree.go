// Package tree carries directory trees as tar streams: Pack writes one, the same bytes for the same tree, and Unpack
// takes one apart that may come from a hostile sandbox.
package tree

import (
	"archive/tar"
	"strings"

	"github.com/hutch-run/hutch/sdk/safefile"
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
	// files that are too big or cannot be opened, directories that cannot be entered. It is for a receiver that tells
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
}
