// Package gitindex reads the index of a git repository without running git, which obeys the repository's settings.
package gitindex

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Index reads an index, version 2 to 4, entry by entry in the order of their paths. It is not safe for concurrent use.
type Index struct {
	Written int64 // when the file was written, in nanoseconds since 1970
	Err     error // the first error; entries before it cannot be trusted either

	// The entry. The slices are valid until the next call of Next.
	Path, ID   []byte // ID names its content
	Stat       []byte // StatBytes bytes
	Mode       uint32 // type and permissions
	Conflicted bool   // it is one side of a merge conflict

	left    []byte
	count   uint32 // of entries to come
	version uint32
	name    int // length of an ID
}

// The stat data of an entry, as offsets into Stat. Numbers have 32 bits, big-endian; times are seconds and nanoseconds.
const (
	StatCtime = 0
	StatMtime = 8
	StatIno   = 20
	StatSize  = 36

	StatBytes = 40

	statMode = 24
)

// maxIndex bounds an index, in bytes.
const maxIndex = 256 << 20

// Of returns the path of the index that belongs to a .git: a directory, or the file of a further work tree or a
// submodule.
func Of(dotGit string) (string, error) {
	fi, err := os.Lstat(dotGit)
	if err != nil {
		return "", err
	}
	if !fi.IsDir() {
		const longest = 4096 + int64(len("gitdir: \n"))
		text, _, err := readRegular(dotGit, longest)
		if err != nil {
			return "", err
		}
		to, ok := strings.CutPrefix(strings.TrimRight(string(text), "\n"), "gitdir: ")
		if !ok {
			return "", fmt.Errorf("%s does not say where the repository is", dotGit)
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(dotGit), to)
		}
		dotGit = to
	}
	return filepath.Join(dotGit, "index"), nil
}

// Open reads an index into memory and checks its sum.
func Open(file string) (*Index, error) {
	data, written, err := readRegular(file, maxIndex)
	if err != nil {
		return nil, err
	}
	x := &Index{Written: written}
	// The sum at its end says as well by which hash contents are named.
	sum1, sum256 := sha1.Size, sha256.Size
	if n := len(data) - sum1; n >= 12 && [sha1.Size]byte(data[n:]) == sha1.Sum(data[:n]) {
		x.name = sum1
	} else if n := len(data) - sum256; n >= 12 && [sha256.Size]byte(data[n:]) == sha256.Sum256(data[:n]) {
		x.name = sum256
	} else {
		return nil, errors.New("it has no checksum, or a wrong one")
	}
	x.version, x.count = binary.BigEndian.Uint32(data[4:]), binary.BigEndian.Uint32(data[8:])
	if string(data[:4]) != "DIRC" || x.version < 2 || x.version > 4 {
		return nil, errors.New("it is of no version that is known")
	}
	x.left = data[12 : len(data)-x.name]
	return x, nil
}

// Next goes on to the next entry. It returns false after the last one, or after an error.
func (x *Index) Next() bool {
	if x.Err != nil {
		return false
	}
	if x.count == 0 {
		x.Err = x.extensions()
		return false
	}
	x.count--
	fixed := StatBytes + x.name + 2
	if len(x.left) < fixed+2 {
		x.Err = io.ErrUnexpectedEOF
		return false
	}
	x.Stat, x.ID = x.left[:StatBytes], x.left[StatBytes:fixed-2]
	flags := binary.BigEndian.Uint16(x.left[fixed-2:])
	const extended, stages = 0x4000, 0x3000
	x.Conflicted, x.Mode = flags&stages != 0, binary.BigEndian.Uint32(x.Stat[statMode:])
	if flags&extended != 0 {
		fixed += 2
	}
	rest := x.left[fixed:]
	keep := 0
	if x.version == 4 { // a path begins with what it shares with the one before
		drop, n := offsetVarint(rest)
		if n == 0 || drop > uint64(len(x.Path)) {
			x.Err = io.ErrUnexpectedEOF
			return false
		}
		rest, keep = rest[n:], len(x.Path)-int(drop)
	}
	end := bytes.IndexByte(rest, 0)
	if end < 0 {
		x.Err = io.ErrUnexpectedEOF
		return false
	}
	x.Path = append(x.Path[:keep], rest[:end]...)
	skip := len(x.left) - len(rest) + end + 1
	if x.version < 4 {
		skip = (skip + 7) &^ 7 // one to eight zero bytes
	}
	if skip > len(x.left) {
		x.Err = io.ErrUnexpectedEOF
		return false
	}
	x.left = x.left[skip:]
	return true
}

// extensions looks at what follows the entries: an extension whose name begins with a small letter must be understood.
func (x *Index) extensions() error {
	for len(x.left) >= 8 {
		if x.left[0] < 'A' || x.left[0] > 'Z' {
			return fmt.Errorf("the extension %.4q is not known", x.left)
		}
		size := uint64(binary.BigEndian.Uint32(x.left[4:])) + 8
		if size > uint64(len(x.left)) {
			return io.ErrUnexpectedEOF
		}
		x.left = x.left[size:]
	}
	return nil
}

// readRegular reads a regular file of at most max bytes. when is when it was written, in nanoseconds since 1970.
func readRegular(file string, max int64) (data []byte, when int64, err error) {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err == nil && (!fi.Mode().IsRegular() || fi.Size() > max) {
		err = fmt.Errorf("%s is no regular file of at most %d bytes", file, max)
	}
	if err != nil {
		return nil, 0, err
	}
	data = make([]byte, fi.Size())
	_, err = io.ReadFull(f, data)
	return data, fi.ModTime().UnixNano(), err
}

// offsetVarint reads the kind of number that version 4 has; n is 0 without one.
func offsetVarint(p []byte) (v uint64, n int) {
	for n < len(p) && n < 9 {
		b := p[n]
		n++
		v = v<<7 | uint64(b&0x7f)
		if b&0x80 == 0 {
			return v, n
		}
		v++
	}
	return 0, 0
}
