package main

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"strings"

	"github.com/klauspost/pgzip"

	"github.com/hutch-run/hutch/plugins/e2b/internal/ignore"
	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/tree"
)

// gzipLevel trades the host's processors for the way to the service; higher ones cost more than they save.
const gzipLevel = 3

var errReaderGone = errors.New("the reader is gone")

// packer writes the archive.
type packer struct {
	list    []part
	hash    hash.Hash
	size    int64
	files   *progress        // of their bytes
	left    int              // entries that were left out
	entries map[string]entry // of the workspace, by their paths in it
	err     error            // what of this host was in the way
}

func (p *packer) sum() string { return hex.EncodeToString(p.hash.Sum(nil)) }

// write writes the archive to w.
func (p *packer) write(ctx context.Context, w io.Writer) error {
	zip, err := pgzip.NewWriterLevel(io.MultiWriter(w, p.hash, (*counter)(&p.size)), gzipLevel)
	if err != nil {
		return err
	}
	out := tar.NewWriter(zip)
	for _, one := range p.list {
		if err := p.part(ctx, out, one); err != nil {
			if !errors.Is(err, errReaderGone) && !errors.Is(err, io.ErrClosedPipe) {
				p.err = err
			}
			return errors.Join(err, zip.Close())
		}
	}
	return errors.Join(out.Close(), zip.Close())
}

// counter counts bytes.
type counter int64

// Write implements [io.Writer].
func (c *counter) Write(b []byte) (int, error) {
	*c += counter(len(b))
	return len(b), nil
}

// skip says what of a part stays behind.
func (one part) skip(root *os.Root) (skip func(string, bool) bool, err func() error) {
	var names []string
	if one.git {
		names = append(names, ignore.Git)
	}
	if one.hutch {
		names = append(names, ignore.Hutch)
	}
	rules := ignore.New(root, names...)
	return func(p string, isDir bool) bool {
		return len(names) > 0 && rules.Skip(p, isDir)
	}, rules.Err
}

// part adds one directory to the archive, as tree.Pack packs it, with another name and what is to be known of it.
func (p *packer) part(ctx context.Context, out *tar.Writer, one part) error {
	root, err := os.OpenRoot(one.source)
	if err != nil {
		return sdk.Errorf(sdk.ReasonConfig, "%s cannot be read: %w", one.source, err)
	}
	defer root.Close()
	skip, rulesErr := one.skip(root)
	packErr, err := piped(ctx, func(ctx context.Context, w io.Writer) error {
		_, err := tree.Pack(ctx, root, w, tree.PackOptions{Skip: skip, Special: true, Times: true})
		return errors.Join(err, rulesErr())
	}, func(r io.Reader) error {
		return p.copy(out, tar.NewReader(r), one)
	})
	if packErr != nil {
		return fmt.Errorf("pack %s: %w", one.source, packErr)
	}
	return err
}

// piped calls write and read at once, with a pipe between them, and returns their errors. That write was not read to
// its end is not an error of write.
func piped(
	ctx context.Context, write func(context.Context, io.Writer) error, read func(io.Reader) error,
) (writeErr, readErr error) {
	ctx, cancel := context.WithCancel(ctx)
	r, w := io.Pipe()
	wrote := make(chan error, 1)
	go func() {
		err := write(ctx, w)
		w.CloseWithError(err)
		wrote <- err
	}()
	readErr = read(r)
	cancel()
	r.CloseWithError(errReaderGone)
	if writeErr = <-wrote; errors.Is(writeErr, errReaderGone) || errors.Is(writeErr, context.Canceled) {
		writeErr = nil
	}
	return writeErr, readErr
}

// copy adds the entries of r.
func (p *packer) copy(out *tar.Writer, r *tar.Reader, one part) error {
	mode := int64(0o755)
	if one.readOnly {
		mode = 0o555
	}
	top := &tar.Header{Typeflag: tar.TypeDir, Name: one.member + "/", Mode: mode, Format: tar.FormatPAX}
	if err := out.WriteHeader(top); err != nil {
		return err
	}
	buf := make([]byte, 256<<10)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if reason, _ := tree.LeftOut(h); reason != "" {
			p.left++
			continue
		}
		name := strings.TrimSuffix(h.Name, "/")
		if one.readOnly && h.Typeflag != tar.TypeSymlink {
			h.Mode = h.Mode&0o555 | 0o444
			if h.Typeflag == tar.TypeDir {
				h.Mode |= 0o111
			}
		}
		h.Name = one.member + "/" + h.Name
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		sum := sha256.New()
		if h.Typeflag == tar.TypeReg {
			if _, err := io.CopyBuffer(io.MultiWriter(out, sum, p.files), onlyReader{r}, buf); err != nil {
				return err
			}
		}
		if one.member == workspaceMember {
			p.entries[name] = packedEntry(h, sum)
		}
	}
}

// onlyReader hides what else a reader can, so that the buffer is used.
type onlyReader struct{ io.Reader }

// progress says how much of something has gone by, each time that a hundredth of it or a megabyte has.
type progress struct {
	step   string
	done   int64
	total  int64
	report func(step string, done, total int64)
}

// Write implements [io.Writer].
func (p *progress) Write(b []byte) (int, error) {
	step := min(1<<20, p.total/100+1)
	before := p.done / step
	p.done += int64(len(b))
	if p.done/step != before {
		p.report(p.step, min(p.done, p.total), p.total)
	}
	return len(b), nil
}

// measure says how many bytes of files the parts hold, for the progress bar.
func measure(ctx context.Context, list []part) (total int64, err error) {
	for _, one := range list {
		root, err := os.OpenRoot(one.source)
		if err != nil {
			return 0, sdk.Errorf(sdk.ReasonConfig, "%s cannot be read: %w", one.source, err)
		}
		skip, _ := one.skip(root)
		n, err := bytesBelow(ctx, root, skip)
		root.Close()
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}
