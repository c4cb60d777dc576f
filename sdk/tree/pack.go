package tree

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
)

// Pack writes the tree below root to w: directories before what is in them, in the order of their names. It follows no
// symbolic link. What is neither file, directory nor symbolic link is an error, unless o.Special. A file that changes
// its size meanwhile is an error.
func Pack(ctx context.Context, root *os.Root, w io.Writer, o PackOptions) (Summary, error) {
	out, finish, err := compress(w, o.Compression)
	if err != nil {
		return Summary{}, err
	}
	if o.MaxEntries <= 0 {
		o.MaxEntries = DefaultMaxEntries
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	p := &packer{ctx: ctx, w: tar.NewWriter(out), o: o, buf: make([]byte, 256<<10)}
	err = p.dir(root, "")
	if err == nil {
		err = p.w.Close()
	}
	if err == nil {
		err = finish()
	}
	return p.sum, err
}

type packer struct {
	ctx     context.Context
	w       *tar.Writer
	o       PackOptions
	buf     []byte
	entries int
	sum     Summary
}

// dir packs what is in a directory, which is open as root.
func (p *packer) dir(root *os.Root, prefix string) error {
	f, err := root.Open(".")
	if err != nil {
		return err
	}
	names, err := f.Readdirnames(p.o.MaxEntries - p.entries + 1)
	f.Close()
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("list %q: %w", prefix, err)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := context.Cause(p.ctx); err != nil {
			return err
		}
		if p.entries++; p.entries > p.o.MaxEntries {
			return fmt.Errorf("the tree has more than %d entries", p.o.MaxEntries)
		}
		if err := p.entry(root, name, path.Join(prefix, name)); err != nil {
			return err
		}
	}
	return nil
}

func (p *packer) entry(root *os.Root, name, full string) error {
	st, err := root.Lstat(name)
	if err != nil {
		return err
	}
	if p.o.Skip != nil && p.o.Skip(full, st.IsDir()) {
		return nil
	}
	h := &tar.Header{Name: full, Mode: int64(st.Mode().Perm()), Format: tar.FormatPAX}
	switch st.Mode().Type() {
	case 0:
		return p.file(root, name, h)
	case fs.ModeDir:
		h.Typeflag, h.Name = tar.TypeDir, full+"/"
		if err := p.w.WriteHeader(h); err != nil {
			return err
		}
		p.sum.Dirs++
		sub, err := root.OpenRoot(name)
		if err != nil {
			return err
		}
		defer sub.Close()
		return p.dir(sub, full)
	case fs.ModeSymlink:
		h.Typeflag, h.Mode = tar.TypeSymlink, 0o777
		if h.Linkname, err = root.Readlink(name); err != nil {
			return err
		}
		p.sum.Symlinks++
		return p.w.WriteHeader(h)
	}
	if !p.o.Special {
		return fmt.Errorf("%q is neither a file, a directory nor a symbolic link", full)
	}
	h.Typeflag = tar.TypeFifo
	return p.w.WriteHeader(h)
}

// file packs a regular file. It is opened without waiting for a writer and without following, because it may have been
// replaced since it was looked at.
func (p *packer) file(root *os.Root, name string, h *tar.Header) error {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return fmt.Errorf("%q was replaced while it was packed", h.Name)
	}
	h.Typeflag, h.Size, h.Mode = tar.TypeReg, st.Size(), int64(st.Mode().Perm())
	if h.Size > p.o.MaxBytes-p.sum.Bytes {
		return fmt.Errorf("the tree has more than %d bytes: %q has %d", p.o.MaxBytes, h.Name, h.Size)
	}
	if err := p.w.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{p.w}, io.LimitReader(&reader{p.ctx, f}, h.Size), p.buf)
	if err != nil {
		return fmt.Errorf("pack %q: %w", h.Name, err)
	}
	if n < h.Size {
		return fmt.Errorf("%q became smaller while it was packed", h.Name)
	}
	p.sum.Files++
	p.sum.Bytes += n
	return nil
}

// reader ends with its context.
type reader struct {
	ctx context.Context
	r   io.Reader
}

func (r *reader) Read(p []byte) (int, error) {
	if err := context.Cause(r.ctx); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

func compress(w io.Writer, c Compression) (io.Writer, func() error, error) {
	switch c {
	case None:
		return w, func() error { return nil }, nil
	case Gzip:
		z := gzip.NewWriter(w)
		return z, z.Close, nil
	case Zstd:
		z, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	}
	return nil, nil, fmt.Errorf("no compression %s", strings.ToValidUTF8(string(c), "?"))
}
