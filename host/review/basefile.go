package review

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/hutch-run/hutch/sdk/overlay"
)

// A base on disk is a line that names the format, then integers as varints and strings with their length, paths by what
// they share with the one before, times as the difference to the one before, and a checksum. It takes 10 to 40 bytes a
// path, and 20 or 32 more where git's index vouched for the content.
const baseMagic = "hutch.base/v2\n"

// Bounds of what LoadBase accepts.
const (
	maxBasePath    = 4096 // bytes of a path, and of a symbolic link's target
	maxBaseEntries = overlay.DefaultMaxEntries
	maxBaseBytes   = 256 << 20
	maxBlobName    = sha256.Size
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Save writes the base in the format that [LoadBase] reads.
func (b *Base) Save(w io.Writer) error {
	buf := bufio.NewWriterSize(w, 64<<10)
	sum := crc32.New(castagnoli)
	e := &baseWriter{w: io.MultiWriter(buf, sum)}
	e.raw([]byte(baseMagic))
	complete := uint64(0)
	if b.complete {
		complete = 1
	}
	e.uint(complete)
	e.int(b.taken.UnixNano())
	list := b.list()
	e.uint(uint64(len(list)))
	var prev Entry
	for _, n := range list {
		shared := sharedPrefix(prev.Path, n.Path)
		e.uint(uint64(shared))
		e.string(n.Path[shared:])
		e.uint(uint64(n.Mode))
		e.uint(uint64(n.Size))
		e.int(n.Mtime - prev.Mtime)
		e.int(n.Ctime - prev.Ctime)
		e.int(int64(n.Ino - prev.Ino))
		switch n.Mode.Type() {
		case fs.ModeSymlink:
			e.string(n.Link)
		case 0:
			e.string(n.Blob)
		}
		e.flush()
		prev = n
	}
	e.flush()
	if e.err == nil {
		_, e.err = buf.Write(binary.LittleEndian.AppendUint32(nil, sum.Sum32()))
	}
	if e.err == nil {
		e.err = buf.Flush()
	}
	if e.err != nil {
		return fmt.Errorf("write the base: %w", e.err)
	}
	return nil
}

// LoadBase reads what [Base.Save] wrote: at most 256 MiB, which is more than a million entries take.
func LoadBase(r io.Reader) (*Base, error) {
	var raw bytes.Buffer
	if f, ok := r.(*os.File); ok {
		if fi, err := f.Stat(); err == nil && fi.Size() <= maxBaseBytes {
			raw.Grow(int(fi.Size()) + bytes.MinRead) // so that it is not read into ever larger pieces
		}
	}
	if _, err := raw.ReadFrom(io.LimitReader(r, maxBaseBytes+1)); err != nil {
		return nil, fmt.Errorf("read the base: %w", err)
	}
	b, err := decodeBase(raw.Bytes())
	if err != nil {
		return nil, fmt.Errorf("read the base: %w", err)
	}
	return b, nil
}

// baseWriter encodes into a buffer that is written an entry at a time. The first error stays.
type baseWriter struct {
	w   io.Writer
	buf []byte
	err error
}

func (e *baseWriter) raw(p []byte)    { e.buf = append(e.buf, p...) }
func (e *baseWriter) uint(v uint64)   { e.buf = binary.AppendUvarint(e.buf, v) }
func (e *baseWriter) int(v int64)     { e.buf = binary.AppendVarint(e.buf, v) }
func (e *baseWriter) string(s string) { e.uint(uint64(len(s))); e.buf = append(e.buf, s...) }

func (e *baseWriter) flush() {
	if e.err == nil {
		_, e.err = e.w.Write(e.buf)
	}
	e.buf = e.buf[:0]
}

// baseReader decodes. The first error stays, and everything read after it is zero.
type baseReader struct {
	left []byte
	err  error
}

func (d *baseReader) uint(max uint64, what string) uint64 {
	if d.err != nil {
		return 0
	}
	v, n := binary.Uvarint(d.left)
	switch {
	case n <= 0:
		d.err = io.ErrUnexpectedEOF
		return 0
	case v > max:
		d.err = fmt.Errorf("%s is %d, at most %d is allowed", what, v, max)
		return 0
	}
	d.left = d.left[n:]
	return v
}

func (d *baseReader) int() int64 {
	if d.err != nil {
		return 0
	}
	v, n := binary.Varint(d.left)
	if n <= 0 {
		d.err = io.ErrUnexpectedEOF
		return 0
	}
	d.left = d.left[n:]
	return v
}

func (d *baseReader) bytes(n uint64) []byte {
	if d.err != nil {
		return nil
	}
	if n > uint64(len(d.left)) {
		d.err = io.ErrUnexpectedEOF
		return nil
	}
	p := d.left[:n]
	d.left = d.left[n:]
	return p
}

const maxInt64 = 1<<63 - 1

// leastEntry is the size of the smallest entry in bytes, so that a number of entries that lies takes no memory.
const leastEntry = 8

func decodeBase(raw []byte) (*Base, error) {
	switch {
	case len(raw) > maxBaseBytes:
		return nil, fmt.Errorf("it has more than %d bytes", maxBaseBytes)
	case !bytes.HasPrefix(raw, []byte(baseMagic)):
		return nil, errors.New("it is of no format that this hutch knows")
	case len(raw) < len(baseMagic)+crc32.Size:
		return nil, io.ErrUnexpectedEOF
	}
	body, sum := raw[:len(raw)-crc32.Size], raw[len(raw)-crc32.Size:]
	if binary.LittleEndian.Uint32(sum) != crc32.Checksum(body, castagnoli) {
		return nil, errors.New("its checksum does not match: it is cut or damaged")
	}
	d := baseReader{left: body[len(baseMagic):]}
	b := &Base{complete: d.uint(1, "the flag") == 1}
	b.taken = time.Unix(0, d.int())
	b.packed = &packedBase{count: int(d.uint(min(maxBaseEntries, uint64(len(d.left))/leastEntry), "the number of entries"))}
	if d.err != nil {
		return nil, d.err
	}
	b.packed.lines = d.left
	all := b.packed.read()
	for all.next() {
	}
	switch {
	case all.d.err != nil:
		return nil, all.d.err
	case len(all.d.left) > 0:
		return nil, errors.New("there is more after its last entry")
	}
	return b, nil
}

// packedBase are the entries of a base as they are on disk, found good. Most of a large project's are never asked for.
type packedBase struct {
	count int
	lines []byte
	once  sync.Once
	list  []Entry
}

// entries unpacks all of them, once.
func (p *packedBase) entries() []Entry {
	p.once.Do(func() {
		p.list = make([]Entry, 0, p.count)
		for r := p.read(); r.next(); {
			p.list = append(p.list, r.named())
		}
	})
	return p.list
}

func (p *packedBase) read() *baseLines {
	return &baseLines{d: baseReader{left: p.lines}, count: p.count}
}

// baseLines goes through packed entries in the order of their paths.
type baseLines struct {
	d     baseReader
	count int           // that are still to come
	path  []byte        // of the entry
	blob  []byte        // of the entry
	entry overlay.Entry // without its path
}

// next goes on to the next entry; there is none after the last one, or after an error.
func (l *baseLines) next() bool {
	if l.count == 0 || l.d.err != nil {
		return false
	}
	l.count--
	first := l.path == nil
	shared := l.d.uint(uint64(len(l.path)), "a shared prefix")
	rest := l.d.bytes(l.d.uint(maxBasePath, "the length of a path"))
	if l.d.err != nil {
		return false
	}
	ordered := first || bytes.Compare(rest, l.path[shared:]) > 0
	l.path = append(l.path[:shared], rest...)
	fresh := bytes.LastIndexByte(l.path[:shared], '/') + 1 // the names before were looked at in the path before
	switch {
	case len(l.path) > maxBasePath || !localPath(string(l.path[fresh:])):
		l.d.err = fmt.Errorf("%.200q is no path below a project", l.path)
	case !ordered:
		l.d.err = fmt.Errorf("the entry %q is out of order", l.path)
	default:
		l.entry = l.d.entry(l.entry)
		if l.blob = nil; l.entry.Mode.Type() == 0 {
			l.blob = l.d.bytes(l.d.uint(maxBlobName, "the length of a content's name"))
		}
	}
	return l.d.err == nil
}

// named is the entry with its path.
func (l *baseLines) named() Entry {
	e := Entry{Entry: l.entry, Blob: string(l.blob)}
	e.Path = string(l.path)
	return e
}

// entry reads what follows a path.
func (d *baseReader) entry(prev overlay.Entry) overlay.Entry {
	var e overlay.Entry
	e.Mode = fs.FileMode(d.uint(1<<32-1, "a mode"))
	e.Size = int64(d.uint(maxInt64, "a size"))
	e.Mtime = prev.Mtime + d.int()
	e.Ctime = prev.Ctime + d.int()
	e.Ino = prev.Ino + uint64(d.int())
	if e.Mode.Type() == fs.ModeSymlink {
		e.Link = string(d.bytes(d.uint(maxBasePath, "the length of a link")))
	}
	return e
}

// localPath reports whether p is a clean relative path that names something below a directory.
func localPath(p string) bool {
	if strings.IndexByte(p, 0) >= 0 {
		return false
	}
	for more := true; more; {
		var name string
		if name, p, more = strings.Cut(p, "/"); name == "" || name == "." || name == ".." {
			return false
		}
	}
	return true
}

func sharedPrefix(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
