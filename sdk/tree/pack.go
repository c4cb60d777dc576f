package tree

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk/safefile"
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
	// Small files and their headers travel together: each write may be a wake-up of the reader.
	wide := bufio.NewWriterSize(out, 256<<10)
	p := &packer{ctx: ctx, w: tar.NewWriter(wide), o: o, buf: make([]byte, 256<<10)}
	top, err := root.Open(".")
	if err != nil {
		return Summary{}, err
	}
	defer top.Close()
	if err = p.dir(top, ""); err == nil {
		err = p.w.Close()
	}
	if err == nil {
		err = wide.Flush()
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

// dir packs what is in a directory, which is open. Names are looked up in it one at a time and never followed, so
// nothing outside is ever read.
func (p *packer) dir(d *os.File, prefix string) error {
	entries, err := d.ReadDir(p.o.MaxEntries - p.entries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("list %q: %w", prefix, err)
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		if err := context.Cause(p.ctx); err != nil {
			return err
		}
		if p.entries++; p.entries > p.o.MaxEntries {
			return fmt.Errorf("the tree has more than %d entries", p.o.MaxEntries)
		}
		if err := p.entry(d, e, path.Join(prefix, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func (p *packer) entry(d *os.File, e os.DirEntry, full string) error {
	if p.o.Skip != nil && p.o.Skip(full, e.IsDir()) {
		return nil
	}
	h := &tar.Header{Name: full, Format: tar.FormatPAX}
	switch e.Type() {
	case 0, fs.ModeDir:
		return p.open(d, e, h)
	case fs.ModeSymlink:
		h.Typeflag, h.Mode = tar.TypeSymlink, 0o777
		buf := make([]byte, 4097)
		n, err := unix.Readlinkat(int(d.Fd()), e.Name(), buf)
		if err != nil {
			return fmt.Errorf("pack %q: %w", full, err)
		}
		h.Linkname = string(buf[:n])
		if fi, err := e.Info(); err == nil && p.o.Times {
			h.ModTime = fi.ModTime()
		}
		p.sum.Symlinks++
		return p.w.WriteHeader(h)
	}
	return p.refuse(h, fmt.Errorf("%q is neither a file, a directory nor a symbolic link", full), safefile.ReasonSpecial,
		"neither a file nor a directory")
}

// refuse leaves an entry out, or with it the whole tree.
func (p *packer) refuse(h *tar.Header, err error, reason safefile.Reason, detail string) error {
	if !p.o.Special {
		return err
	}
	if p.sum.LeftOut++; p.sum.LeftOut == 1 {
		p.sum.FirstLeftOut = fmt.Sprintf("%q (%s)", h.Name, reason)
	}
	return p.w.WriteHeader(LeaveOut(h, reason, detail))
}

// open packs a file or a directory. It is opened without waiting for a writer and without following, because it may
// have been replaced since it was listed.
func (p *packer) open(d *os.File, e os.DirEntry, h *tar.Header) error {
	fd, err := unix.Openat(int(d.Fd()), e.Name(),
		unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		if e.IsDir() {
			h.Name += "/"
		}
		return p.refuse(h, fmt.Errorf("pack %q: %w", h.Name, err), safefile.ReasonIO, "it cannot be opened: "+err.Error())
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return fmt.Errorf("pack %q: %w", h.Name, err)
	}
	h.Mode = int64(st.Mode & 0o777)
	if p.o.Times {
		h.ModTime = time.Unix(st.Mtim.Unix())
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		sub := os.NewFile(uintptr(fd), e.Name())
		defer sub.Close()
		full := h.Name
		h.Typeflag, h.Name = tar.TypeDir, full+"/"
		if err := p.w.WriteHeader(h); err != nil {
			return err
		}
		p.sum.Dirs++
		return p.dir(sub, full)
	case unix.S_IFREG:
		defer unix.Close(fd)
		h.Typeflag, h.Size = tar.TypeReg, st.Size
		return p.file(fd, h)
	}
	unix.Close(fd)
	return p.refuse(h, fmt.Errorf("%q was replaced while it was packed", h.Name), safefile.ReasonChanged,
		"it was replaced while it was read")
}

// file packs the content of a regular file. Without package os, which asks the kernel three more questions about each.
func (p *packer) file(fd int, h *tar.Header) error {
	if h.Size > p.o.MaxBytes-p.sum.Bytes {
		return p.refuse(h, fmt.Errorf("the tree has more than %d bytes: %q has %d", p.o.MaxBytes, h.Name, h.Size),
			safefile.ReasonTooBig,
			fmt.Sprintf("%d bytes, and at most %d are taken of the whole tree", h.Size, p.o.MaxBytes))
	}
	if err := p.w.WriteHeader(h); err != nil {
		return err
	}
	for left := h.Size; left > 0; {
		if err := context.Cause(p.ctx); err != nil {
			return err
		}
		n, err := unix.Read(fd, p.buf[:min(left, int64(len(p.buf)))])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("pack %q: %w", h.Name, err)
		}
		if n == 0 {
			return fmt.Errorf("%q became smaller while it was packed", h.Name)
		}
		if _, err := p.w.Write(p.buf[:n]); err != nil {
			return err
		}
		left -= int64(n)
	}
	p.sum.Files++
	p.sum.Bytes += h.Size
	return nil
}

// Reader reads from r until ctx ends; then a Read returns the cause of that.
func Reader(ctx context.Context, r io.Reader) io.Reader { return &reader{ctx, r} }

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
