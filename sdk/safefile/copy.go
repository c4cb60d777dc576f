package safefile

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Copied says what [Copy] wrote.
type Copied struct {
	Info
	SHA256 string // hex
}

const copyBuffer = 256 << 10

// Copy copies a regular file of at most max bytes to dst, and hashes it on the way. Holes are not read from disk, and
// stay holes when dst is a fresh [os.File]. A file that changes its size meanwhile is an error. The error is an
// *[Error] when the file is to blame, else ctx's or that of dst; dst then holds a part of the file.
func Copy(ctx context.Context, dst io.Writer, root *os.Root, name string, max int64) (Copied, error) {
	f, info, err := Open(root, name, max)
	if err != nil {
		return Copied{}, err
	}
	defer f.Close()
	return copyFile(ctx, dst, f, info, name)
}

func copyFile(ctx context.Context, dst io.Writer, f *os.File, info Info, name string) (Copied, error) {
	c := copier{ctx: ctx, dst: dst, src: f, name: name, size: info.Size, hash: sha256.New(),
		buf: make([]byte, min(copyBuffer, max(info.Size, 1)))}
	if out, ok := dst.(*os.File); ok {
		// Leaping over holes is right only where nothing is yet, so not in a pipe nor in the middle of something.
		if at, err := out.Seek(0, io.SeekCurrent); err == nil && at == 0 {
			if fi, err := out.Stat(); err == nil && fi.Mode().IsRegular() && fi.Size() == 0 {
				c.sparse = out
			}
		}
	}
	if err := c.run(); err != nil {
		return Copied{}, err
	}
	after, err := f.Stat()
	if err != nil {
		return Copied{}, ioError(name, err)
	}
	if after.Size() != info.Size {
		return Copied{}, refuse(name, ReasonChanged, "it had %d bytes when it was opened and has %d now", info.Size,
			after.Size())
	}
	return Copied{Info: info, SHA256: hex.EncodeToString(c.hash.Sum(nil))}, nil
}

type copier struct {
	ctx    context.Context
	dst    io.Writer
	sparse *os.File // dst, where it can have holes
	src    *os.File
	name   string
	size   int64
	hash   hash.Hash
	buf    []byte
}

// run copies data and holes in turn.
func (c *copier) run() error {
	for at := int64(0); at < c.size; {
		data, end := nextData(c.src, at, c.size)
		if err := c.hole(data - at); err != nil {
			return err
		}
		if err := c.data(data, end); err != nil {
			return err
		}
		at = end
	}
	if c.sparse != nil {
		return c.sparse.Truncate(c.size) // a hole at the end
	}
	return nil
}

func (c *copier) data(at, end int64) error {
	for at < end {
		if c.ctx.Err() != nil {
			return context.Cause(c.ctx)
		}
		n, err := c.src.ReadAt(c.buf[:min(int64(len(c.buf)), end-at)], at)
		if err != nil && (!errors.Is(err, io.EOF) || n == 0) {
			if errors.Is(err, io.EOF) {
				return refuse(c.name, ReasonChanged, "it became shorter while it was read")
			}
			return ioError(c.name, err)
		}
		c.hash.Write(c.buf[:n])
		if _, err := c.dst.Write(c.buf[:n]); err != nil {
			return err
		}
		at += int64(n)
	}
	return nil
}

// hole passes over n zero bytes.
func (c *copier) hole(n int64) error {
	if n <= 0 {
		return nil
	}
	if c.sparse != nil {
		if _, err := c.sparse.Seek(n, io.SeekCurrent); err != nil {
			return err
		}
	}
	clear(c.buf)
	for n > 0 {
		if c.ctx.Err() != nil {
			return context.Cause(c.ctx)
		}
		k := min(n, int64(len(c.buf)))
		c.hash.Write(c.buf[:k])
		if c.sparse == nil {
			if _, err := c.dst.Write(c.buf[:k]); err != nil {
				return err
			}
		}
		n -= k
	}
	return nil
}

// nextData finds the next stretch of data between at and size: its begin and its end. Where the file system does not
// tell, all is data.
func nextData(f *os.File, at, size int64) (data, end int64) {
	data, err := f.Seek(at, unix.SEEK_DATA)
	if err != nil || data < at {
		if errors.Is(err, unix.ENXIO) { // nothing but a hole follows
			return size, size
		}
		return at, size
	}
	if data >= size {
		return size, size
	}
	end, err = f.Seek(data, unix.SEEK_HOLE)
	if err != nil || end <= data {
		return data, size
	}
	return data, min(end, size)
}
