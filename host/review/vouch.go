package review

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

// maxIndex bounds git's index, in bytes.
const maxIndex = 256 << 20

// vouch notes with each entry of dir git's name of its content, where the index of the repository that dir lies in says
// of a file which looked exactly like this what was in it. That is how git itself knows that a file is clean. Nothing is
// said where there is no index, or one that is not understood: the names are needed for merges alone.
func vouch(dir string, entries []Entry) {
	file, prefix, err := findIndex(dir)
	if err != nil || file == "" {
		return
	}
	x, err := readIndex(file)
	if err != nil {
		return
	}
	at := 0
	for x.next() {
		rel, ok := bytes.CutPrefix(x.path, []byte(prefix))
		if !ok {
			continue
		}
		for at < len(entries) && entries[at].Path < string(rel) {
			at++
		}
		if at < len(entries) && entries[at].Path == string(rel) && x.isOf(entries[at]) {
			entries[at].Blob = string(x.blob)
		}
	}
	if x.err != nil { // what came before it is not to be trusted either
		for i := range entries {
			entries[i].Blob = ""
		}
	}
}

// findIndex finds the index of the repository whose work tree dir lies in, and what its paths begin with there. file is
// empty where there is no repository.
func findIndex(dir string) (file, prefix string, err error) {
	if dir, err = filepath.Abs(dir); err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return "", "", err
	}
	for top := dir; ; top = filepath.Dir(top) {
		at := filepath.Join(top, ".git")
		fi, err := os.Lstat(at)
		if err != nil {
			if top == filepath.Dir(top) {
				return "", "", nil
			}
			continue
		}
		if prefix, err = filepath.Rel(top, dir); err != nil {
			return "", "", err
		}
		if prefix += "/"; prefix == "./" {
			prefix = ""
		}
		if !fi.IsDir() { // a further work tree, or a submodule
			text, _, err := readRegular(at, maxBasePath)
			if err != nil {
				return "", "", err
			}
			to, ok := strings.CutPrefix(strings.TrimRight(string(text), "\n"), "gitdir: ")
			if !ok {
				return "", "", fmt.Errorf("%s does not say where the repository is", at)
			}
			if at = to; !filepath.IsAbs(to) {
				at = filepath.Join(top, to)
			}
		}
		return filepath.Join(at, "index"), prefix, nil
	}
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

// gitIndex reads an index of git, version 2 to 4, entry by entry in the order of their paths. The first error stays.
type gitIndex struct {
	left    []byte
	count   uint32 // of entries to come
	version uint32
	name    int   // length of a content's name
	written int64 // when it was, in nanoseconds since 1970
	err     error

	// The entry:
	path, blob, stat []byte
	plain            bool // it is a regular file, of no conflict
}

// The stat data of an entry, as offsets into its first 40 bytes.
const (
	statCtime, statMtime, statIno, statMode, statSize = 0, 8, 20, 24, 36

	statBytes = 40
)

func readIndex(file string) (*gitIndex, error) {
	data, written, err := readRegular(file, maxIndex)
	if err != nil {
		return nil, err
	}
	x := &gitIndex{written: written}
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

// next goes on to the next entry; there is none after the last one, or after an error.
func (x *gitIndex) next() bool {
	if x.err != nil {
		return false
	}
	if x.count == 0 {
		x.err = x.extensions()
		return false
	}
	x.count--
	fixed := statBytes + x.name + 2
	if len(x.left) < fixed+2 {
		x.err = io.ErrUnexpectedEOF
		return false
	}
	x.stat, x.blob = x.left[:statBytes], x.left[statBytes:fixed-2]
	flags := binary.BigEndian.Uint16(x.left[fixed-2:])
	const extended, stages = 0x4000, 0x3000
	x.plain = flags&stages == 0 && binary.BigEndian.Uint32(x.stat[statMode:])>>12 == unix.S_IFREG>>12
	if flags&extended != 0 {
		fixed += 2
	}
	rest := x.left[fixed:]
	keep := 0
	if x.version == 4 { // a path begins with what it shares with the one before
		drop, n := offsetVarint(rest)
		if n == 0 || drop > uint64(len(x.path)) {
			x.err = io.ErrUnexpectedEOF
			return false
		}
		rest, keep = rest[n:], len(x.path)-int(drop)
	}
	end := bytes.IndexByte(rest, 0)
	if end < 0 {
		x.err = io.ErrUnexpectedEOF
		return false
	}
	x.path = append(x.path[:keep], rest[:end]...)
	skip := len(x.left) - len(rest) + end + 1
	if x.version < 4 {
		skip = (skip + 7) &^ 7 // one to eight zero bytes
	}
	if skip > len(x.left) {
		x.err = io.ErrUnexpectedEOF
		return false
	}
	x.left = x.left[skip:]
	return true
}

// extensions looks at what follows the entries: an extension whose name begins with a small letter must be understood.
func (x *gitIndex) extensions() error {
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

// isOf reports whether the entry is about a file that looks as e does, and was written before the index was: what is
// written in the same moment, git itself compares.
func (x *gitIndex) isOf(e Entry) bool {
	number := func(at int) uint32 { return binary.BigEndian.Uint32(x.stat[at:]) }
	time := func(at int) int64 { return int64(number(at))*1e9 + int64(number(at+4)) }
	return x.plain && e.Mode.Type() == 0 && time(statMtime) == e.Mtime && time(statCtime) == e.Ctime && e.Mtime < x.written &&
		number(statIno) == uint32(e.Ino) && e.Size <= maxText && int64(number(statSize)) == e.Size
}

// offsetVarint reads the kind of number that version 4 has; n is 0 where there is none.
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
