// Package tree carries directory trees as tar streams: Pack writes one, the same bytes for the same tree, and Unpack
// takes one apart that may come from a hostile sandbox.
package tree

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
	// Special writes FIFOs, sockets and devices as entries without content instead of failing: for a receiver that
	// tells what it leaves out. Unpack refuses them.
	Special bool
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
