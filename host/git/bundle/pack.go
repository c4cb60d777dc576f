package bundle

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha1" //nolint:gosec // it is git's checksum, not a proof of anything
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"strings"

	"github.com/hutch-run/hutch/host/git"
	"github.com/hutch-run/hutch/host/units"
)

// Header is what stands before the pack.
type Header struct {
	Version       int      // 2 or 3
	Format        string   // of object names: "sha1" or "sha256"
	Prerequisites []string // commits that the receiver must have
	Refs          []Ref
}

// Ref is one thing that a bundle offers. The name is whatever the bundle says: it is compared and never used.
type Ref struct{ Object, Name string }

// What a header may have. Git itself writes one line for each branch and tag.
const (
	maxHeaderLine = 4096
	maxHeaderRefs = 10_000
)

// hexLen is the length of an object name.
func hexLen(format string) int {
	if format == "sha256" {
		return 64
	}
	return 40
}

// errNoBundle says that the bytes are none at all.
var errNoBundle = errors.New("it is no git bundle")

// ReadHeader reads up to the first byte of the pack. It returns how many bytes that were.
func ReadHeader(r *bufio.Reader) (*Header, int64, error) {
	var read int64
	line := func() (string, error) {
		s, err := r.ReadSlice('\n')
		read += int64(len(s))
		switch {
		case errors.Is(err, bufio.ErrBufferFull), len(s) > maxHeaderLine:
			return "", fmt.Errorf("a line of its header is longer than %d bytes", maxHeaderLine)
		case errors.Is(err, io.EOF):
			return "", errors.New("it ends within its header")
		case err != nil:
			return "", err
		}
		return string(s[:len(s)-1]), nil
	}
	first, err := r.Peek(16)
	if err != nil || !strings.HasPrefix(string(first), "# v") {
		return nil, 0, errNoBundle
	}
	h := &Header{Format: "sha1"}
	switch s, err := line(); {
	case err != nil:
		return nil, read, err
	case s == "# v2 git bundle":
		h.Version = 2
	case s == "# v3 git bundle":
		h.Version = 3
	default:
		return nil, read, errNoBundle
	}
	for {
		s, err := line()
		if err != nil {
			return nil, read, err
		}
		if s == "" {
			return h, read, nil
		}
		if err := h.take(s); err != nil {
			return nil, read, err
		}
	}
}

// take takes one line in.
func (h *Header) take(s string) error {
	if rest, ok := strings.CutPrefix(s, "@"); ok && h.Version == 3 {
		if len(h.Refs) > 0 || len(h.Prerequisites) > 0 {
			return errors.New("a capability stands behind a ref")
		}
		switch rest {
		case "object-format=sha1", "object-format=sha256":
			h.Format = strings.TrimPrefix(rest, "object-format=")
			return nil
		}
		return fmt.Errorf("it asks for %q, which hutch does not take", rest)
	}
	before, isBefore := strings.CutPrefix(s, "-")
	n := hexLen(h.Format)
	if isBefore {
		s = before
	}
	if len(s) < n || !isHex(s[:n]) || len(s) > n && s[n] != ' ' {
		return errors.New("a line of its header names no object")
	}
	if len(h.Refs)+len(h.Prerequisites) >= maxHeaderRefs {
		return fmt.Errorf("its header has more than %d lines", maxHeaderRefs)
	}
	if isBefore {
		if len(h.Refs) > 0 {
			return errors.New("a prerequisite stands behind a ref")
		}
		h.Prerequisites = append(h.Prerequisites, s[:n])
		return nil
	}
	if len(s) < n+2 {
		return errors.New("a ref of its header has no name")
	}
	h.Refs = append(h.Refs, Ref{Object: s[:n], Name: s[n+1:]})
	return nil
}

// Find returns the object of the first of the names that the bundle has.
func (h *Header) Find(names ...string) (string, bool) {
	for _, name := range names {
		for _, r := range h.Refs {
			if r.Name == name {
				return r.Object, true
			}
		}
	}
	return "", false
}

// String is the header as git writes it.
func (h *Header) String() string {
	var b strings.Builder
	if h.Format == "sha256" {
		b.WriteString("# v3 git bundle\n@object-format=sha256\n")
	} else {
		b.WriteString("# v2 git bundle\n")
	}
	for _, p := range h.Prerequisites {
		fmt.Fprintf(&b, "-%s\n", p)
	}
	for _, r := range h.Refs {
		fmt.Fprintf(&b, "%s %s\n", r.Object, r.Name)
	}
	return b.String() + "\n"
}

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }

// Caps bound what a bundle may hold. Zeros mean the defaults.
type Caps struct {
	Bytes   int64 // of the bundle: 1 GiB
	Objects int64 // in the pack: 1,000,000
	Object  int64 // bytes of one object, unpacked: 100 MiB
	Total   int64 // bytes of all objects, unpacked: 8 GiB
	Commits int64 // that are new: 10,000
	Paths   int64 // that any of them adds or changes: 200,000
}

func (c Caps) filled() Caps {
	for _, d := range []struct {
		v   *int64
		def int64
	}{{&c.Bytes, 1 << 30}, {&c.Objects, 1_000_000}, {&c.Object, 100 << 20}, {&c.Total, 8 << 30}, {&c.Commits, 10_000},
		{&c.Paths, 200_000}} {
		if *d.v <= 0 {
			*d.v = d.def
		}
	}
	return c
}

// MaxBytes is how large a bundle may be.
func (c Caps) MaxBytes() int64 { return c.filled().Bytes }

// The types of entries in a pack.
const (
	packCommit = 1
	packTag    = 4
	packOffset = 6 // a delta on an entry before it
	packNamed  = 7 // a delta on an object by its name
)

// Pack is what a scan found.
type Pack struct {
	Objects int64
	Bytes   int64 // of all objects, unpacked
}

// ScanPack reads a whole pack and holds it to the caps without keeping any of it: memory is bounded whatever the pack
// says. An object above its cap is refused before it is unpacked. Names of objects are not computed and deltas not
// applied: git does that, once it is known how large all of it will be. r must end where the pack ends.
func ScanPack(ctx context.Context, r io.Reader, format string, caps Caps) (Pack, error) {
	caps = caps.filled()
	sum := sha1.New() //nolint:gosec // see above
	if format == "sha256" {
		sum = sha256.New()
	}
	in := &packReader{r: r, sum: sum}
	var head [12]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return Pack{}, cut(err)
	}
	if version := binary.BigEndian.Uint32(head[4:]); string(head[:4]) != "PACK" || version != 2 && version != 3 {
		return Pack{}, errors.New("what follows its header is no pack")
	}
	p := Pack{Objects: int64(binary.BigEndian.Uint32(head[8:]))}
	if p.Objects > caps.Objects {
		return p, fmt.Errorf("it has %d objects, more than %d", p.Objects, caps.Objects)
	}
	s := &scanner{in: in, caps: caps, name: sum.Size()}
	for i := range p.Objects {
		if i%256 == 0 && ctx.Err() != nil {
			return p, context.Cause(ctx)
		}
		n, err := s.entry(caps.Total - p.Bytes)
		if err != nil {
			return p, fmt.Errorf("object %d of %d: %w", i+1, p.Objects, cut(err))
		}
		p.Bytes += n
	}
	want := in.checksum()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(in, got); err != nil {
		return p, cut(err)
	}
	if !bytes.Equal(got, want) {
		return p, errors.New("its checksum is wrong: it was changed or cut on the way")
	}
	if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
		return p, errors.New("something stands behind its end")
	}
	return p, nil
}

// cut says what an end of the bytes means.
func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("it is cut off")
	}
	return err
}

// packReader hashes what is read of it, a buffer at a time. It is an [io.ByteReader], so that inflating takes no byte
// too many.
type packReader struct {
	r         io.Reader
	sum       hash.Hash
	buf       [64 << 10]byte
	pos, end  int // what is yet to be read
	unhashed  int // where what was read and not hashed begins
	exhausted error
}

// fill reads on when everything was taken.
func (p *packReader) fill() error {
	for p.pos == p.end {
		if p.exhausted != nil {
			return p.exhausted
		}
		p.hash()
		p.pos, p.unhashed = 0, 0
		p.end, p.exhausted = p.r.Read(p.buf[:])
	}
	return nil
}

// hash takes in what was read.
func (p *packReader) hash() {
	if p.sum != nil {
		p.sum.Write(p.buf[p.unhashed:p.pos])
	}
	p.unhashed = p.pos
}

// Read implements [io.Reader].
func (p *packReader) Read(b []byte) (int, error) {
	if err := p.fill(); err != nil {
		return 0, err
	}
	n := copy(b, p.buf[p.pos:p.end])
	p.pos += n
	return n, nil
}

// ReadByte implements [io.ByteReader].
func (p *packReader) ReadByte() (byte, error) {
	if p.pos == p.end {
		if err := p.fill(); err != nil {
			return 0, err
		}
	}
	p.pos++
	return p.buf[p.pos-1], nil
}

// checksum is that of all that was read, and what is read from now on is no part of it.
func (p *packReader) checksum() []byte {
	p.hash()
	sum := p.sum.Sum(nil)
	p.sum = nil
	return sum
}

// scanner goes through the entries of one pack.
type scanner struct {
	in   *packReader
	caps Caps
	name int // bytes of an object name
	z    io.ReadCloser
	buf  [32 << 10]byte
}

// entry reads one entry and returns how large the object is that it makes.
func (s *scanner) entry(left int64) (int64, error) {
	c, err := s.in.ReadByte()
	if err != nil {
		return 0, err
	}
	kind, size, shift := c>>4&7, int64(c&15), 4
	for c&0x80 != 0 {
		if c, err = s.in.ReadByte(); err != nil {
			return 0, err
		}
		if shift > 56 {
			return 0, errors.New("its size makes no sense")
		}
		size |= int64(c&0x7f) << shift
		shift += 7
	}
	if err := s.fits(size, left); err != nil {
		return 0, err
	}
	switch {
	case kind >= packCommit && kind <= packTag:
		return size, s.inflate(size, nil)
	case kind == packOffset:
		for c = 0x80; c&0x80 != 0; {
			if c, err = s.in.ReadByte(); err != nil {
				return 0, err
			}
		}
	case kind == packNamed:
		if _, err := io.CopyN(io.Discard, s.in, int64(s.name)); err != nil {
			return 0, err
		}
	default:
		return 0, fmt.Errorf("git has no object of type %d", kind)
	}
	// A delta begins with the size of what it is based on and the size of what it makes.
	var head deltaHead
	if err := s.inflate(size, &head); err != nil {
		return 0, err
	}
	grown, ok := head.result()
	if !ok {
		return 0, errors.New("its delta makes no sense")
	}
	return grown, s.fits(grown, left)
}

func (s *scanner) fits(size, left int64) error {
	switch {
	case size < 0 || size > s.caps.Object:
		return fmt.Errorf("it has %s, %w%s", amount(size), ErrLargeFile, units.FormatSize(s.caps.Object))
	case size > left:
		return fmt.Errorf("all objects together have more than %s", units.FormatSize(s.caps.Total))
	}
	return nil
}

func amount(n int64) string {
	if n < 0 || n == math.MaxInt64 {
		return "a size beyond all measure"
	}
	return units.FormatSize(n)
}

// inflate unpacks exactly size bytes and drops them.
func (s *scanner) inflate(size int64, head *deltaHead) (err error) {
	if s.z == nil {
		s.z, err = zlib.NewReader(s.in)
	} else {
		err = s.z.(zlib.Resetter).Reset(s.in, nil)
	}
	if err != nil {
		return err
	}
	var n int64
	for {
		m, err := s.z.Read(s.buf[:])
		if head != nil {
			head.add(s.buf[:m])
		}
		if n += int64(m); n > size {
			return errors.New("it unpacks to more than it says")
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	if n != size {
		return errors.New("it unpacks to less than it says")
	}
	return nil
}

// deltaHead keeps the first bytes of a delta: two numbers of at most ten bytes each.
type deltaHead struct {
	b [20]byte
	n int
}

func (d *deltaHead) add(p []byte) { d.n += copy(d.b[d.n:], p) }

// result is the second of the numbers.
func (d *deltaHead) result() (int64, bool) {
	_, n := binary.Uvarint(d.b[:d.n])
	if n <= 0 {
		return 0, false
	}
	v, m := binary.Uvarint(d.b[n:d.n])
	return int64(min(v, math.MaxInt64)), m > 0
}

// Part says how much of the history a bundle leaves out. The zero value is all of it.
type Part struct {
	// Have are commits that the receiver has with the history behind them. They become prerequisites, and the pack is made
	// of what they do not reach, with deltas on what they do.
	Have []string
	// Ends are commits whose parents are left out, as [git.Repo.Ends] finds them. A bundle cannot say so itself: the
	// receiver has to have them in its file .git/shallow before it fetches.
	Ends []string
}

// Write writes a bundle that holds commit with its history as branch. The pack is made as `git bundle create` has it
// made, and comes as it is made: nothing is written on this host.
//
// The header is written here and not by git, because a commit that no ref names has no name for `git bundle`, and
// giving it one would show in the user's repository.
func Write(ctx context.Context, r *git.Repo, commit, branch string, p Part, w io.Writer) error {
	h := Header{Format: r.Format, Prerequisites: p.Have, Refs: []Ref{{commit, "refs/heads/" + branch}}}
	if _, err := io.WriteString(w, h.String()); err != nil {
		return err
	}
	var revs strings.Builder
	for _, end := range p.Ends {
		revs.WriteString("--shallow " + end + "\n") // as git upload-pack says it
	}
	revs.WriteString(commit + "\n")
	for _, have := range p.Have {
		revs.WriteString("^" + have + "\n")
	}
	args := []string{"pack-objects", "--quiet", "--stdout", "--revs", "--delta-base-offset"}
	if len(p.Have) > 0 {
		args = append(args, "--thin")
	}
	_, err := r.Do(ctx, git.Call{Stdin: strings.NewReader(revs.String()), Stdout: w}, args...)
	return err
}
