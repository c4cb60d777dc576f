package tree

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/hutch-run/hutch/sdk/safepath"
)

// Unpack writes the tree in r below dst, which should be empty. The stream may be hostile: names that are unsafe or
// collide, hard links, devices, symbolic links that lead out of dst however indirectly, and whatever exceeds the caps
// refuse the whole tree. Modes lose set-id bits and writing for group and others; the owner may always read and write.
// On an error everything it made is removed again.
func Unpack(ctx context.Context, r io.Reader, dst *os.Root, c Caps) (Summary, error) {
	if c.Entries <= 0 {
		c.Entries = DefaultMaxEntries
	}
	if c.Bytes <= 0 {
		c.Bytes = DefaultMaxBytes
	}
	if c.File <= 0 {
		c.File = c.Bytes
	}
	if c.Depth <= 0 {
		c.Depth = safepath.DefaultMaxDepth
	}
	plain, done, err := decompress(&reader{ctx, r})
	if err != nil {
		return Summary{}, err
	}
	defer done()
	u := &unpacker{ctx: ctx, dst: dst, caps: c, buf: make([]byte, 256<<10), tops: map[string]bool{}}
	if err := u.all(tar.NewReader(plain)); err != nil {
		return Summary{}, errors.Join(err, u.undo())
	}
	return u.sum, nil
}

type unpacker struct {
	ctx     context.Context
	dst     *os.Root
	caps    Caps
	buf     []byte
	names   safepath.Set
	tops    map[string]bool // what was made directly below dst
	links   []link          // made at last, so that nothing is ever written through one
	dirs    []dirMode
	entries int
	sum     Summary
}

type link struct{ name, target string }

type dirMode struct {
	name string
	mode fs.FileMode
}

func (u *unpacker) all(tr *tar.Reader) error {
	for {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			return fmt.Errorf("the tar stream is broken: %w", err)
		}
		if u.entries++; u.entries > u.caps.Entries {
			return fmt.Errorf("the tree has more than %d entries", u.caps.Entries)
		}
		if err := u.entry(h, tr); err != nil {
			return err
		}
	}
	for _, l := range u.links {
		if err := u.dst.Symlink(l.target, l.name); err != nil {
			return err
		}
	}
	// A link may lead through others: only following it tells where it ends.
	for _, l := range u.links {
		if _, err := u.dst.Stat(l.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("symbolic link %q leads out of the tree: %w", l.name, err)
		}
	}
	for i := len(u.dirs) - 1; i >= 0; i-- {
		if err := u.dst.Chmod(u.dirs[i].name, u.dirs[i].mode); err != nil {
			return err
		}
	}
	return nil
}

func (u *unpacker) entry(h *tar.Header, r io.Reader) error {
	name := strings.TrimPrefix(h.Name, "./")
	isDir := h.Typeflag == tar.TypeDir
	if isDir {
		name = strings.TrimSuffix(name, "/")
		if name == "" || name == "." {
			return nil
		}
	}
	if err := (safepath.Rules{MaxDepth: u.caps.Depth}).Check(name); err != nil {
		return err
	}
	add := u.names.AddFile
	if isDir {
		add = u.names.AddDir
	}
	if err := add(name); err != nil {
		return err
	}
	top, _, _ := strings.Cut(name, "/")
	u.tops[top] = true
	mode := fs.FileMode(h.Mode)&0o755 | 0o600
	if dir := path.Dir(name); dir != "." && h.Typeflag != tar.TypeDir {
		if err := u.dst.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	switch h.Typeflag {
	case tar.TypeDir:
		u.sum.Dirs++
		u.dirs = append(u.dirs, dirMode{name, mode | 0o700})
		return u.dst.MkdirAll(name, 0o755)
	case tar.TypeReg:
		return u.file(name, mode, h.Size, r)
	case tar.TypeSymlink:
		t := h.Linkname
		if t == "" || strings.IndexByte(t, 0) >= 0 || len(t) > safepath.DefaultMaxLen {
			return fmt.Errorf("symbolic link %q has no usable target", name)
		}
		if in := path.Join(path.Dir(name), t); path.IsAbs(t) || in == ".." || strings.HasPrefix(in, "../") {
			return fmt.Errorf("symbolic link %q leads out of the tree, to %q", name, t)
		}
		u.sum.Symlinks++
		u.links = append(u.links, link{name, t})
		return nil
	}
	return fmt.Errorf("%q is neither a file, a directory nor a symbolic link", name)
}

func (u *unpacker) file(name string, mode fs.FileMode, size int64, r io.Reader) error {
	if size > u.caps.File {
		return fmt.Errorf("%q has %d bytes, at most %d are allowed", name, size, u.caps.File)
	}
	if size > u.caps.Bytes-u.sum.Bytes {
		return fmt.Errorf("the tree has more than %d bytes", u.caps.Bytes)
	}
	f, err := u.dst.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{f}, r, u.buf)
	if err == nil {
		err = f.Chmod(mode)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("unpack %q: %w", name, err)
	}
	u.sum.Files++
	u.sum.Bytes += n
	return nil
}

// undo removes what was made.
func (u *unpacker) undo() error {
	var errs []error
	for top := range u.tops {
		if err := u.dst.RemoveAll(top); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// decompress looks at the first bytes of a stream to tell how it is compressed.
func decompress(r io.Reader) (io.Reader, func(), error) {
	b := bufio.NewReaderSize(r, 64<<10)
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
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(128<<20))
		if err != nil {
			return nil, nil, fmt.Errorf("the zstd stream is broken: %w", err)
		}
		return z, z.Close, nil
	}
	return b, func() {}, nil
}
